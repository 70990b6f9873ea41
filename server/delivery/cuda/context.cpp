// SPDX-License-Identifier: Apache-2.0
#include "delivery/cuda/context.h"

namespace spdld::delivery::cuda {

Context::~Context() {
  if (context_ != nullptr) functions_.DevicePrimaryCtxRelease(device_);
}

Status Context::begin() {
  CUcontext context = nullptr;
  SPDLD_TRY(status(functions_.DevicePrimaryCtxRetain(&context, device_), "beginning a context"));
  context_ = context;
  return {};
}

Status Context::status(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return {};
  return Status(Code::kInternal,
                name_ + ": " + what + ": " + spdld::cuda::error_text(functions_, result));
}

}  // namespace spdld::delivery::cuda
