// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace spdld::source {

// The values of one kind that sources have open, by name, so that sources of one value share it in
// memory. It keeps none of them alive, and no entry of a closed one beyond the next put() or
// share(). Thread-safe.
template <typename Value>
class OpenValues {
 public:
  using Ptr = std::shared_ptr<const Value>;

  // Null: it is not open.
  Ptr find(const std::string& name) SPDLD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : found->second.lock();
  }
  // From now on it is `value`, whatever was open before. Returns `value`.
  Ptr put(const std::string& name, Ptr value) SPDLD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    forget_closed();
    values_[name] = value;
    return value;
  }
  // What is open by that name, which is `value` if there was nothing.
  Ptr share(const std::string& name, Ptr value) SPDLD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    forget_closed();
    std::weak_ptr<const Value>& entry = values_[name];
    if (auto other = entry.lock()) return other;
    entry = value;
    return value;
  }
  void add_names(std::set<std::string>& names) SPDLD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    forget_closed();
    for (const auto& [name, value] : values_) names.insert(name);
  }

 private:
  void forget_closed() SPDLD_REQUIRES(mutex_) {
    std::erase_if(values_, [](const auto& entry) { return entry.second.expired(); });
  }

  Mutex mutex_;
  std::map<std::string, std::weak_ptr<const Value>> values_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::source
