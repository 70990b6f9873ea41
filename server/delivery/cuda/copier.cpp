// SPDX-License-Identifier: Apache-2.0
#include "delivery/cuda/copier.h"

#include <pthread.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "delivery/cuda/pinned_slots.h"
#include "delivery/cuda/vmm_arena.h"

namespace spdld::delivery::cuda {
namespace {

// Work of others may throw, say for lack of memory: that ends the work, and not this thread.
Status guarded(const std::function<Status()>& work) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    return {Code::kInternal, thrown.what()};
  }
}

}  // namespace

Copier::~Copier() {
  stop();
  join();
}

void Copier::join() {
  if (thread_.joinable()) thread_.join();
}

Status Copier::start() {
  {
    const Current current(*context_);
    SPDLD_TRY(current.status());
    SPDLD_TRY(context_->status(
        context_->functions().StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
        "making a stream"));
  }
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "spdld-cuda");
  return {};
}

void Copier::stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool Copier::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

Status Copier::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void Copier::copy(DeviceCopy copy, Done done) {
  MutexLock lock(mutex_);
  queue_.emplace_back(Copy{.what = std::move(copy), .done = std::move(done)});
  changed_.notify_all();
}

void Copier::post(std::function<void()> task) {
  MutexLock lock(mutex_);
  queue_.emplace_back(std::move(task));
  changed_.notify_all();
}

void Copier::run() {
  auto current = std::make_unique<Current>(*context_);
  fail(current->status());
  for (;;) {
    std::optional<std::variant<Copy, Task>> next;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && under_way_.empty() && !stopping_) changed_.wait(mutex_);
      if (queue_.empty() && under_way_.empty()) break;
      if (!queue_.empty() && under_way_.size() < kUnderWay) {
        next = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (!next) {
      finish_oldest();
    } else if (Task* const task = std::get_if<Task>(&*next)) {
      if (Status ran = guarded([&] { return (*task)(), Status(); }); !ran.ok())
        spdlog::error("{}: {}", context_->name(), ran.message());
    } else {
      begin(std::get<Copy>(std::move(*next)));
    }
  }
  const Functions& functions = context_->functions();
  for (CUevent event : idle_events_) functions.EventDestroy(event);
  if (stream_ != nullptr) functions.StreamDestroy(stream_);
  current = nullptr;
  context_ = nullptr;  // the GPU's memory that it takes is wanted elsewhere
  MutexLock lock(mutex_);
  ended_ = true;
}

void Copier::begin(Copy copy) {
  bool wanted = true;
  Status status = guarded([&] {
    wanted = !copy.what.wanted || copy.what.wanted();
    return Status();
  });
  if (!wanted) return;
  if (status.ok()) status = failure();
  if (status.ok()) status = issue(copy);
  if (!status.ok()) {
    while (!under_way_.empty()) finish_oldest();
    drain();
    return end(copy, status);
  }
  if (copy.what.beside) copy.beside = guarded(copy.what.beside);
  under_way_.push_back(std::move(copy));
}

Status Copier::issue(Copy& copy) {
  const Functions& functions = context_->functions();
  auto& pinned = static_cast<PinnedSlots&>(*copy.what.pinned);
  SPDLD_TRY(pinned.pin(copy.what.slot));
  const std::uint64_t total = copy.what.to->total_bytes();
  const CUdeviceptr base = static_cast<VmmArena&>(*copy.what.to).base();
  for (const DeviceCopy::Part& part : copy.what.parts) {
    SPDLD_CHECK(part.bytes <= total && part.to <= total - part.bytes);
    SPDLD_TRY(
        context_->status(functions.MemcpyHtoDAsync(base + part.to, part.from, part.bytes, stream_),
                         "copying a batch"));
  }
  copy.over = take_event();
  if (copy.over == nullptr)
    return context_->status(functions.StreamSynchronize(stream_), "copying a batch");
  return context_->status(functions.EventRecord(copy.over, stream_), "recording an event");
}

void Copier::finish_oldest() {
  Copy copy = std::move(under_way_.front());
  under_way_.pop_front();
  Status status = std::move(copy.beside);
  if (copy.over != nullptr) {
    const Status copied =
        context_->status(context_->functions().EventSynchronize(copy.over), "copying a batch");
    if (!copied.ok()) {
      fail(copied);
      drain();
    }
    if (status.ok()) status = copied;
  }
  end(copy, status);
}

// A copy that failed may be under way in part: it still reads its slot and writes to the GPU.
void Copier::drain() {
  if (stream_ == nullptr) return;
  fail(context_->status(context_->functions().StreamSynchronize(stream_), "copying a batch"));
}

void Copier::fail(const Status& why) {
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = why;
}

void Copier::end(const Copy& copy, const Status& status) {
  if (copy.over != nullptr) idle_events_.push_back(copy.over);
  copy.done(status);
}

// Null: there is none to be had, and the stream itself is waited for.
CUevent Copier::take_event() {
  if (!idle_events_.empty()) {
    CUevent const event = idle_events_.back();
    idle_events_.pop_back();
    return event;
  }
  CUevent event = nullptr;
  // The thread sleeps until it has passed, and leaves the core to decoding.
  constexpr unsigned kFlags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
  if (context_->functions().EventCreate(&event, kFlags) != CUDA_SUCCESS) return nullptr;
  return event;
}

}  // namespace spdld::delivery::cuda
