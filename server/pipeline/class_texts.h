// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "source/item/source.h"

namespace spdld::pipeline {

// The class names of sources as consumers are sent them, each ended by a NUL: made when a consumer
// asks for the first time, and shared by all answers until the source has gone. Owned by Sessions;
// thread-safe, a leaf among the locks.
class ClassTexts {
 public:
  std::shared_ptr<const std::string> of(const std::shared_ptr<source::Source>& source)
      SPDLD_EXCLUDES(mutex_);
  // Drops the texts of sources that have gone.
  void forget_gone() SPDLD_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::weak_ptr<source::Source> source;
    std::shared_ptr<const std::string> text;
  };

  Mutex mutex_;
  // An address that is used again has an entry whose source has gone.
  std::map<const source::Source*, Entry> entries_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::pipeline
