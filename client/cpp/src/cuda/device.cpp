// SPDX-License-Identifier: Apache-2.0
#include "cuda/device.h"

#include "spdld/error.h"
#include "text.h"

namespace spdld::client::cuda {

Event::~Event() {
  if (!device_->in_owner()) return;  // a thread that is not here may have held the lock
  const std::lock_guard lock(device_->mutex_);
  device_->idle_events_.push_back(event_);
}

std::shared_ptr<Device> Device::open(int ordinal) {
  const spdld::cuda::Driver& driver = spdld::cuda::driver();
  if (!driver)
    throw DeviceError(kFailedPrecondition,
                      join("device 'cuda' cannot be had: ", driver.why_not,
                           "; without device= batches come in main memory, unless the "
                           "pipeline says 'delivery: {device: cuda}'"));
  if (ordinal < 0 || ordinal >= driver.devices)
    throw DeviceError(kInvalidArgument,
                      join("there is no device cuda:", ordinal, ": this process sees ",
                           driver.devices, driver.devices == 1 ? " device" : " devices",
                           " (CUDA_VISIBLE_DEVICES chooses which)"));
  std::shared_ptr<Device> device(new Device(*driver.functions, ordinal));
  device->check(driver.functions->DeviceGet(&device->device_, ordinal), "opening the device");
  device->check(driver.functions->DevicePrimaryCtxRetain(&device->context_, device->device_),
                "taking its context");
  return device;
}

Device::~Device() {
  if (!in_owner() || context_ == nullptr) return;
  if (const Current current(*this); current) {
    for (CUevent event : idle_events_) functions_.EventDestroy(event);
  }
  functions_.DevicePrimaryCtxRelease(device_);
}

std::string Device::uuid() const {
  std::string uuid;
  check(spdld::cuda::uuid_of(functions_, device_, uuid), "asking for its UUID");
  return uuid;
}

int Device::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return functions_.DeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

bool Device::is_capturing(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = functions_.StreamIsCapturing(stream, &status);
  // The legacy default stream would wait for a blocking stream that is captured.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  check(result, "asking a stream");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool Device::is_idle(CUstream stream) const {
  const CUresult result = functions_.StreamQuery(stream);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "asking how far a stream is");
  return true;
}

EventPtr Device::event() {
  CUevent event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_events_.empty()) {
      event = idle_events_.back();
      idle_events_.pop_back();
    }
  }
  if (event == nullptr)
    check(functions_.EventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event");
  return std::make_shared<Event>(shared_from_this(), event);
}

void Device::check(CUresult result, const char* what) const {
  if (result != CUDA_SUCCESS) fail(result, what);
}

void Device::fail(CUresult result, const char* what) const {
  std::string text =
      join("cuda:", ordinal_, ": ", what, ": ", spdld::cuda::error_text(functions_, result));
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      text +=
          ". A kernel of this process failed before; spdld runs none. CUDA_LAUNCH_BLOCKING=1 shows "
          "which. What the daemon brought to the GPU may only be read: write to a clone";
      break;
    case CUDA_ERROR_OUT_OF_MEMORY:
      text +=
          ". A loader with device= keeps a copy of each batch that waits or is held: take a "
          "smaller batch or prefetch, or leave device= out";
      break;
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      text +=
          ". Another process has the device for itself: see the compute mode that nvidia-smi shows";
      break;
    case CUDA_ERROR_NOT_INITIALIZED:
      if (!in_owner()) text += ". This process was forked after CUDA was begun: start it by spawn";
      break;
    default: break;
  }
  throw DeviceError(kUnavailable, text);
}

Current::Current(const Device& device) : device_(device) {
  if (device.in_owner())
    pushed_ = device.functions_.CtxPushCurrent(device.context_) == CUDA_SUCCESS;
  if (pushed_)
    relaxed_ = device.functions_.ThreadExchangeStreamCaptureMode(&capture_) == CUDA_SUCCESS;
}

Current::~Current() {
  CUcontext context = nullptr;
  if (!pushed_) return;
  if (relaxed_) device_.functions_.ThreadExchangeStreamCaptureMode(&capture_);
  device_.functions_.CtxPopCurrent(&context);
}

}  // namespace spdld::client::cuda
