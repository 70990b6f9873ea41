// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cuda/functions.h"

namespace spdld::cuda {

// NVIDIA's driver as this process finds it, or why it cannot be used.
struct Driver {
  const Functions* functions = nullptr;  // null: see `why_not`
  int version = 0;                       // 1000 * major + 10 * minor of the newest CUDA it serves
  int devices = 0;                       // that this process sees; at least 1 if it can be used
  std::string why_not = {};              // a whole sentence without its point

  explicit operator bool() const { return functions != nullptr; }
};

// Loads libcuda.so.1 and starts the driver, at the first call in this process; makes no context.
// In a child that was forked after that call it cannot be used. Thread-safe.
const Driver& driver();

// As nvidia-smi prints it: "GPU-…", or "MIG-…" of an instance of a GPU that is cut into several.
CUresult uuid_of(const Functions& functions, CUdevice device, std::string& uuid);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
std::string error_text(const Functions& functions, CUresult result);

}  // namespace spdld::cuda
