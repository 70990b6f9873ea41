// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "delivery/cuda/context.h"
#include "delivery/device_memory.h"

namespace spdld::delivery::cuda {

// The thread that has a GPU copy batches ("spdld-cuda"). Where there are two of them to copy, the
// second is on its way while the first is awaited. After stop() it does what it was given, and then
// ends by itself; its owner joins it.
class Copier {
 public:
  explicit Copier(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  Status start();  // once
  void stop() SPDLD_EXCLUDES(mutex_);
  bool ended() const SPDLD_EXCLUDES(mutex_);  // it would be joined at once
  void join();  // once; after stop(), or while another thread calls it

  using Done = std::function<void(const Status&)>;
  void copy(DeviceCopy copy, Done done) SPDLD_EXCLUDES(mutex_);
  void post(std::function<void()> task) SPDLD_EXCLUDES(mutex_);
  // Why the context is of no more use, and no copy is tried any more; ok until then.
  Status failure() const SPDLD_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kUnderWay = 2;
  struct Copy {
    DeviceCopy what;
    Done done;
    CUevent over = nullptr;
    Status beside = {};
  };
  using Task = std::function<void()>;

  void run() SPDLD_EXCLUDES(mutex_);
  void begin(Copy copy) SPDLD_EXCLUDES(mutex_);
  Status issue(Copy& copy);
  void finish_oldest();
  void drain();
  void fail(const Status& why) SPDLD_EXCLUDES(mutex_);
  void end(const Copy& copy, const Status& status);
  CUevent take_event();

  std::shared_ptr<Context> context_;  // until the thread ends
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::variant<Copy, Task>> queue_ SPDLD_GUARDED_BY(mutex_);
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  Status failure_ SPDLD_GUARDED_BY(mutex_);
  // The thread alone.
  CUstream stream_ = nullptr;
  std::deque<Copy> under_way_;
  std::vector<CUevent> idle_events_;
  std::thread thread_;
};

}  // namespace spdld::delivery::cuda
