// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "source/item/source.h"

namespace spdld::source {

// Remembers what it was told and lets a test wait for it.
class FakeSink final : public FetchSink {
 public:
  void fetched(std::uint64_t token, Status status) override {
    MutexLock lock(mutex_);
    ++calls_[token];
    told_[token] = std::move(status);
    changed_.notify_all();
  }

  Status wait(std::uint64_t token) {
    MutexLock lock(mutex_);
    while (!told_.contains(token)) changed_.wait(mutex_);
    return told_[token];
  }
  int calls(std::uint64_t token) {
    MutexLock lock(mutex_);
    return calls_[token];
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint64_t, Status> told_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::uint64_t, int> calls_ SPDLD_GUARDED_BY(mutex_);
};

// Fetches and waits, whichever way it goes.
inline Status fetch_and_wait(Source& source, std::uint64_t item, FetchedItem& out,
                             std::vector<PartRequest> requests = {{}}) {
  FakeSink sink;
  const auto state = source.fetch(item, requests, out, sink, 7);
  if (!state) return state.error();
  return *state == FetchState::kReady ? Status() : sink.wait(7);
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::string text_of(const ByteBuffer& buffer) { return text_of(buffer.bytes()); }
// Of the part of the first request.
inline std::string text_of(const FetchedItem& item) { return text_of(item.part(0)); }

}  // namespace spdld::source
