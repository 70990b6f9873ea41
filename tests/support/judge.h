// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "stream/stream_reader.h"

namespace spdld::testing {

// Allows so many items to be replaced, and keeps their numbers. Thread-safe.
class Judge final : public stream::FailureJudge {
 public:
  explicit Judge(std::size_t allowed = 1000) : allowed_(allowed) {}

  Status may_replace(const engine::SampleFailure& failure) override {
    MutexLock lock(mutex_);
    if (items_.size() >= allowed_) return Status(Code::kDataLoss, "no more of them");
    items_.push_back(failure.item);
    return {};
  }
  void stream_failed(const engine::StreamFailure&) override {}

  std::vector<std::uint64_t> items() {
    MutexLock lock(mutex_);
    return items_;
  }

 private:
  const std::size_t allowed_;
  Mutex mutex_;
  std::vector<std::uint64_t> items_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::testing
