// SPDX-License-Identifier: Apache-2.0
// The functions of the driver about itself, devices and contexts.
#include <algorithm>
#include <cstring>

#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/errors.h"

namespace spdld::fake_cuda {
namespace {

// Runs `body(const Device&)` if there is such a device.
template <typename Body>
CUresult with_device(const char* function, CUdevice ordinal, Body body) {
  return with_driver(function, [&](Driver& driver) {
    const auto& devices = driver.contexts.devices();
    if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices.size())
      return CUDA_ERROR_INVALID_DEVICE;
    return body(driver, devices[ordinal]);
  });
}

}  // namespace

FAKE_CUDA_EXPORT CUresult cuInit(unsigned flags) {
  if (const CUresult fault = faults().begin_call("cuInit"); fault != CUDA_SUCCESS) return fault;
  return flags == 0 ? start_driver() : CUDA_ERROR_INVALID_VALUE;
}

FAKE_CUDA_EXPORT CUresult cuDriverGetVersion(int* version) {
  if (const CUresult fault = faults().begin_call("cuDriverGetVersion"); fault != CUDA_SUCCESS)
    return fault;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = environment().version;
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  if (const CUresult fault = faults().begin_call("cuGetErrorName"); fault != CUDA_SUCCESS)
    return fault;
  const ErrorWords* const words = words_of(error);
  *name = words != nullptr ? words->name : nullptr;
  return words != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_CUDA_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  if (const CUresult fault = faults().begin_call("cuGetErrorString"); fault != CUDA_SUCCESS)
    return fault;
  const ErrorWords* const words = words_of(error);
  *text = words != nullptr ? words->text : nullptr;
  return words != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetCount(int* count) {
  return with_driver("cuDeviceGetCount", [&](Driver& driver) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(driver.contexts.devices().size());
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device("cuDeviceGet", ordinal, [&](Driver&, const Device&) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  return with_device("cuDeviceGetName", ordinal, [&](Driver&, const Device& device) {
    if (name == nullptr || length < 1) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t bytes = std::min<std::size_t>(length - 1, device.name.size());
    std::memcpy(name, device.name.data(), bytes);
    name[bytes] = '\0';
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  return with_device("cuDeviceGetUuid", ordinal, [&](Driver&, const Device& device) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *uuid = device.uuid;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                               CUdevice ordinal) {
  return with_device("cuDeviceGetAttribute", ordinal, [&](Driver&, const Device& device) {
    if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
      return CUDA_ERROR_INVALID_VALUE;
    *value = device.attribute(attribute);
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice ordinal) {
  return with_device("cuDeviceTotalMem", ordinal, [&](Driver&, const Device&) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = environment().memory_bytes;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  return with_device("cuDevicePrimaryCtxRetain", ordinal, [&](Driver& driver, const Device&) {
    return context == nullptr ? CUDA_ERROR_INVALID_VALUE : driver.contexts.retain(ordinal, context);
  });
}

FAKE_CUDA_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  CUcontext last = nullptr;
  const CUresult result =
      with_device("cuDevicePrimaryCtxRelease", ordinal, [&](Driver& driver, const Device&) {
        Context* context = nullptr;
        const CUresult released = driver.contexts.release(ordinal, &context);
        if (context != nullptr) last = context->handle;
        return released;
      });
  if (last == nullptr) return result;
  Driver& driver = *started_driver();
  driver.scheduler.wait_for_all(last);
  const MutexLock lock(driver_mutex());
  // Another thread may have retained it again, or released it to its end.
  const Context* const context = driver.contexts.find(last);
  if (context != nullptr && context->retains == 0) destroy_context(driver, last);
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return with_driver("cuCtxPushCurrent",
                     [&](Driver& driver) { return driver.contexts.push(context); });
}

FAKE_CUDA_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return with_driver("cuCtxPopCurrent",
                     [&](Driver& driver) { return driver.contexts.pop(context); });
}

}  // namespace spdld::fake_cuda
