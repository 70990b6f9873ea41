// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "delivery/device_memory.h"
#include "tests/unit/stream/hand_gpu.h"

namespace spdld::stream::testing {

// Two GPUs, "GPU-1" and "GPU-2", whose copies are done by a thread; the test says what they refuse.
class HandDevices final : public delivery::Devices {
 public:
  explicit HandDevices(std::uint64_t budget_bytes = std::uint64_t{1} << 30)
      : budget_bytes_(budget_bytes) {}
  ~HandDevices() override {
    thread_.request_stop();
    thread_.join();
    for (const HandGpuPtr& gpu : gpus_) gpu->settle();
  }
  HandDevices(const HandDevices&) = delete;
  HandDevices& operator=(const HandDevices&) = delete;

  Result<delivery::DeviceMemoryPtr> open(const std::string& uuid) override {
    std::function<void()> first;
    {
      MutexLock lock(mutex_);
      ++opened_;
      first = std::exchange(when_opened_, nullptr);
      if (!refusal_.empty()) return error(Code::kFailedPrecondition, refusal_);
    }
    if (first) first();
    for (const HandGpuPtr& gpu : gpus_) {
      if (gpu->uuid() == uuid) return delivery::DeviceMemoryPtr(gpu);
    }
    return error(Code::kFailedPrecondition, "there is no " + uuid);
  }
  std::vector<delivery::DeviceFacts> facts() const override { return {}; }
  std::uint64_t budget_bytes() const override { return budget_bytes_; }
  std::string why_none() const override { return {}; }
  std::string driver_text() const override { return {}; }

  HandGpu& gpu(std::size_t index) { return *gpus_[index]; }
  // How many have it: with 0, the daemon would have no context there.
  long users(std::size_t index) const { return gpus_[index].use_count() - 1; }
  void await_no_user(std::size_t index) const {
    while (users(index) > 0) std::this_thread::yield();
  }
  int opened() {
    MutexLock lock(mutex_);
    return opened_;
  }
  // From now on nobody is given one; empty: everybody is.
  void refuse(std::string why) {
    MutexLock lock(mutex_);
    refusal_ = std::move(why);
  }
  // Called at the next open(), before it answers.
  void when_opened(std::function<void()> then) {
    MutexLock lock(mutex_);
    when_opened_ = std::move(then);
  }

 private:
  const std::uint64_t budget_bytes_;
  const std::vector<HandGpuPtr> gpus_{std::make_shared<HandGpu>("GPU-1"),
                                      std::make_shared<HandGpu>("GPU-2")};
  Mutex mutex_;
  int opened_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::string refusal_ SPDLD_GUARDED_BY(mutex_);
  std::function<void()> when_opened_ SPDLD_GUARDED_BY(mutex_);
  // Last, as it uses the others.
  std::jthread thread_{[this](const std::stop_token& stops) {
    while (!stops.stop_requested()) {
      for (const HandGpuPtr& gpu : gpus_) gpu->settle();
      std::this_thread::yield();
    }
  }};
};

}  // namespace spdld::stream::testing
