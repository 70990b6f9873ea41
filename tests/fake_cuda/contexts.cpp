// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/contexts.h"

#include "tests/fake_cuda/handles.h"

namespace spdld::fake_cuda {
namespace {

thread_local std::vector<CUcontext> current_contexts;  // of this thread; the last is current

}  // namespace

CUresult Contexts::retain(CUdevice ordinal, CUcontext* handle) {
  if (lost_[ordinal] != CUDA_SUCCESS) return lost_[ordinal];
  if (Context* const there = of_device(ordinal)) {
    ++there->retains;
    *handle = there->handle;
    return CUDA_SUCCESS;
  }
  const Device& device = devices_[ordinal];
  const int mode = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  if (mode == CU_COMPUTEMODE_PROHIBITED ||
      !ledger_.add_context(device.index, mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS))
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  *handle = new_handle<CUcontext>();
  contexts_[*handle] = {.handle = *handle, .device = &device, .retains = 1};
  return CUDA_SUCCESS;
}

CUresult Contexts::release(CUdevice ordinal, Context** last) {
  Context* const context = of_device(ordinal);
  if (context == nullptr || context->retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context->retains == 0) *last = context;
  return CUDA_SUCCESS;
}

void Contexts::destroy(CUcontext handle) {
  const auto found = contexts_.find(handle);
  --ledger_.own().contexts[found->second.device->index];
  contexts_.erase(found);
}

CUresult Contexts::push(CUcontext handle) {
  if (find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  current_contexts.push_back(handle);
  return CUDA_SUCCESS;
}

CUresult Contexts::pop(CUcontext* handle) {
  if (current_contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = current_contexts.back();
  current_contexts.pop_back();
  return CUDA_SUCCESS;
}

CUresult Contexts::current(Context** context) {
  if (current_contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = find(current_contexts.back());
  return *context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : (*context)->broken;
}

Context* Contexts::find(CUcontext handle) {
  const auto found = contexts_.find(handle);
  return found == contexts_.end() ? nullptr : &found->second;
}

Context* Contexts::of_device(CUdevice ordinal) {
  for (auto& [handle, context] : contexts_) {
    if (context.device == &devices_[ordinal]) return &context;
  }
  return nullptr;
}

const Device* Contexts::device(CUdevice ordinal) const {
  const bool there = ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices_.size();
  return there ? &devices_[ordinal] : nullptr;
}

CUdevice Contexts::ordinal(const std::string& uuid) const {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (text_of(devices_[i].uuid) == uuid) return static_cast<CUdevice>(i);
  }
  return -1;
}

}  // namespace spdld::fake_cuda
