// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace spdld::client::cuda {

using spdld::cuda::Functions;

class Device;

// An event of a device, which goes back to its pool with the last that shares it.
class Event {
 public:
  Event(std::shared_ptr<Device> device, CUevent event)
      : device_(std::move(device)), event_(event) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  CUevent get() const { return event_; }

 private:
  const std::shared_ptr<Device> device_;
  const CUevent event_;
};
using EventPtr = std::shared_ptr<Event>;

// One device as this process uses it: by its primary context, which is the one that torch and all
// other users of the CUDA runtime have. Thread-safe, and alive as long as anything made on it.
class Device : public std::enable_shared_from_this<Device> {
 public:
  // Throws DeviceError.
  static std::shared_ptr<Device> open(int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const { return ordinal_; }
  CUdevice get() const { return device_; }
  // As nvidia-smi prints it. Throws DeviceError.
  std::string uuid() const;
  const Functions& functions() const { return functions_; }
  bool in_owner() const { return ::getpid() == owner_; }
  int attribute(CUdevice_attribute attribute) const;
  // Whether the stream is captured into a graph, or cannot be used as another one is. Throws
  // DeviceError.
  bool is_capturing(CUstream stream) const;
  // Whether the stream, which is not captured, has done all that it was given itself. Throws
  // DeviceError.
  bool is_idle(CUstream stream) const;
  // An event that was not recorded yet. Throws DeviceError.
  EventPtr event();

  // Throws DeviceError unless it is CUDA_SUCCESS. `what` was tried: "copying a batch".
  void check(CUresult result, const char* what) const;
  [[noreturn]] void fail(CUresult result, const char* what) const;

 private:
  friend class Event;
  Device(const Functions& functions, int ordinal) : functions_(functions), ordinal_(ordinal) {}

  const Functions& functions_;
  const int ordinal_;
  const pid_t owner_ = ::getpid();
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::mutex mutex_;
  std::vector<CUevent> idle_events_;  // guarded by mutex_

  friend class Current;
};

// Makes the device's context the thread's, until it dies; what was there before is there again
// then. Meanwhile calls that are none of a graph are allowed though another stream is being
// captured.
class Current {
 public:
  explicit Current(const Device& device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  // Whether it could: it cannot when the process ends, or in a forked child.
  explicit operator bool() const { return pushed_; }

 private:
  const Device& device_;
  bool pushed_ = false;
  bool relaxed_ = false;
  CUstreamCaptureMode capture_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace spdld::client::cuda
