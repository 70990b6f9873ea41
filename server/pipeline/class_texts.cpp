// SPDX-License-Identifier: Apache-2.0
#include "pipeline/class_texts.h"

#include <utility>

namespace spdld::pipeline {

std::shared_ptr<const std::string> ClassTexts::of(const std::shared_ptr<source::Source>& source) {
  {
    MutexLock lock(mutex_);
    const auto known = entries_.find(source.get());
    if (known != entries_.end() && known->second.source.lock() == source) return known->second.text;
  }
  std::string text;
  for (const std::string& name : source->classes()) {
    text += name;
    text += '\0';
  }
  Entry entry{.source = source, .text = std::make_shared<const std::string>(std::move(text))};
  MutexLock lock(mutex_);
  Entry& kept = entries_[source.get()];
  if (kept.source.lock() != source) kept = std::move(entry);
  return kept.text;
}

void ClassTexts::forget_gone() {
  MutexLock lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.source.expired(); });
}

}  // namespace spdld::pipeline
