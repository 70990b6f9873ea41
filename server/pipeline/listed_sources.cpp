// SPDX-License-Identifier: Apache-2.0
#include "pipeline/listed_sources.h"

#include <algorithm>
#include <utility>

namespace spdld::pipeline {

ListedSources::Listed* ListedSources::find(const Source& source) {
  const auto found = std::find_if(listed_.begin(), listed_.end(),
                                  [&](const Listed& listed) { return listed.source == source; });
  return found == listed_.end() ? nullptr : &*found;
}

std::string ListedSources::dataset(const Source& source) {
  MutexLock lock(mutex_);
  const Listed* const known = find(source);
  return known == nullptr ? std::string() : known->dataset;
}

void ListedSources::add(const Source& source, const std::string& dataset,
                        std::vector<std::string> warnings) {
  MutexLock lock(mutex_);
  Listed listed{
      .source = source, .dataset = dataset, .warnings = std::move(warnings), .changed = {}};
  if (Listed* const known = find(source)) {
    if (known->dataset == dataset) listed.changed = std::move(known->changed);
    *known = std::move(listed);
    return;
  }
  if (listed_.size() == kMostSources) listed_.erase(listed_.begin());
  listed_.push_back(std::move(listed));
}

bool ListedSources::set_changed(const Source& source, const std::string& warning) {
  MutexLock lock(mutex_);
  Listed* const known = find(source);
  return known != nullptr && std::exchange(known->changed, warning) != warning;
}

std::vector<std::string> ListedSources::datasets() const {
  MutexLock lock(mutex_);
  std::vector<std::string> datasets;
  for (const Listed& listed : listed_) datasets.push_back(listed.dataset);
  return datasets;
}

std::vector<std::string> ListedSources::warnings() const {
  MutexLock lock(mutex_);
  std::vector<std::string> warnings;
  for (const Listed& listed : listed_) {
    warnings.insert(warnings.end(), listed.warnings.begin(), listed.warnings.end());
    if (!listed.changed.empty()) warnings.push_back(listed.changed);
  }
  return warnings;
}

}  // namespace spdld::pipeline
