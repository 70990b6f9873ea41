// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "op/source_spec.h"

namespace spdld::pipeline {

// What one version of a pipeline has listed since it was applied: its own source and those that
// variables made of it, so that who brings the same variables again gets the same files and class
// numbers. Made with a version by the catalogue, and shared by its variants; thread-safe.
class ListedSources {
 public:
  using Source = SourceSpec;

  // The dataset's id (source/kept/dataset_id.h); empty: that source was not listed yet.
  std::string dataset(const Source& source) SPDLD_EXCLUDES(mutex_);
  // Its warnings replace those from the last time that this source was opened. Of so many sources
  // the oldest are forgotten.
  void add(const Source& source, const std::string& dataset, std::vector<std::string> warnings)
      SPDLD_EXCLUDES(mutex_);
  // That its data are not as they were listed any more; empty: they are. Whether that is news.
  bool set_changed(const Source& source, const std::string& warning) SPDLD_EXCLUDES(mutex_);

  std::vector<std::string> datasets() const SPDLD_EXCLUDES(mutex_);
  // What operators should know though nothing failed, such as classes that have no item.
  std::vector<std::string> warnings() const SPDLD_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kMostSources = 100;

  struct Listed {
    Source source;
    std::string dataset;
    std::vector<std::string> warnings;
    std::string changed;
  };
  Listed* find(const Source& source) SPDLD_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<Listed> listed_ SPDLD_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace spdld::pipeline
