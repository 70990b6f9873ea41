// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "cuda/driver.h"

namespace spdld::delivery::cuda {

using spdld::cuda::Functions;

// The daemon's context on one GPU: the primary one, which has no kernels of ours. While it lives,
// the GPU has about 0.5 GB less for others. Thread-safe.
class Context {
 public:
  // `name` is the GPU's, for messages.
  Context(const Functions& functions, CUdevice device, std::string name)
      : functions_(functions), device_(device), name_(std::move(name)) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Status begin();
  const Functions& functions() const { return functions_; }
  CUdevice device() const { return device_; }
  CUcontext get() const { return context_; }
  const std::string& name() const { return name_; }

  // Ok for CUDA_SUCCESS; else kInternal with what was tried, the GPU and the driver's words.
  Status status(CUresult result, const char* what) const;

 private:
  const Functions& functions_;
  const CUdevice device_;
  const std::string name_;
  CUcontext context_ = nullptr;
};

// Makes the context the thread's, until it dies.
class Current {
 public:
  explicit Current(const Context& context)
      : context_(context),
        status_(context.status(context.functions().CtxPushCurrent(context.get()),
                               "making its context current")) {}
  ~Current() {
    if (status_.ok()) context_.functions().CtxPopCurrent(nullptr);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  const Status& status() const { return status_; }

 private:
  const Context& context_;
  const Status status_;
};

}  // namespace spdld::delivery::cuda
