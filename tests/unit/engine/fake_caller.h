// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "op/row_call.h"

namespace spdld::engine {

inline std::string text_of(const CallArgument& argument) {
  return {reinterpret_cast<const char*>(argument.bytes.data()), argument.bytes.size()};
}

inline std::int64_t number_of(const CallArgument& argument) {
  std::int64_t number = 0;
  std::memcpy(&number, argument.bytes.data(), sizeof number);
  return number;
}

inline void put(PackedRow& to, const void* data, std::size_t bytes) {
  std::byte* const room = to.bytes.resize(bytes);
  if (bytes > 0) std::memcpy(room, data, bytes);
  to.view = {room, bytes};
  to.shape = {static_cast<std::int64_t>(bytes)};
}

// Runs a function on each row that it is given: on threads of its own, or, where there are none,
// before call() returns. Told to hold, it keeps the rows until answer().
class FakeCaller final : public RowCaller {
 public:
  using Function = std::function<Status(CallRow& row)>;

  FakeCaller(unsigned threads, Function function) : function_(std::move(function)) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~FakeCaller() override {
    {
      MutexLock lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    threads_.clear();
  }

  void call(CallRow& row, CallSink& sink, std::uint64_t token) override {
    if (threads_.empty()) {
      ++calls;
      return sink.called(token, function_(row));
    }
    MutexLock lock(mutex_);
    rows_.push_back({&row, &sink, token});
    most_at_once = std::max(most_at_once, rows_.size());
    changed_.notify_all();
  }
  void look_for_dropped() override {
    MutexLock lock(mutex_);
    changed_.notify_all();
  }
  std::string waits_for() const override { return "start runners"; }
  std::string wanted() const override { return {}; }

  void hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void answer() {
    MutexLock lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void wait_for_rows(std::size_t count) {
    MutexLock lock(mutex_);
    while (rows_.size() < count) changed_.wait(mutex_);
  }

  std::atomic<int> calls = 0;
  std::size_t most_at_once = 0;

 private:
  struct Waiting {
    CallRow* row;
    CallSink* sink;
    std::uint64_t token;
  };

  static bool is_dropped(const Waiting& waiting) {
    return waiting.row->dropped != nullptr && *waiting.row->dropped;
  }

  void work() {
    while (true) {
      Waiting next{};
      {
        MutexLock lock(mutex_);
        const auto wanted = [&]() SPDLD_REQUIRES(mutex_) {
          return held_ ? std::find_if(rows_.begin(), rows_.end(), is_dropped)
                       : (rows_.empty() ? rows_.end() : std::prev(rows_.end()));  // the last first
        };
        while (wanted() == rows_.end()) {
          if (ended_) return;
          changed_.wait(mutex_);
        }
        next = *wanted();
        rows_.erase(wanted());
      }
      ++calls;
      next.sink->called(next.token, is_dropped(next) ? Status(Code::kCancelled, "dropped")
                                                     : function_(*next.row));
    }
  }

  const Function function_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Waiting> rows_ SPDLD_GUARDED_BY(mutex_);
  bool held_ SPDLD_GUARDED_BY(mutex_) = false;
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace spdld::engine
