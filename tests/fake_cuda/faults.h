// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace spdld::fake_cuda {

struct Fault {
  std::string function;
  std::uint64_t call = 0;  // 1 is the first
  CUresult error = CUDA_SUCCESS;
};

// Counts the calls of each function, and makes those fail that are to. Thread-safe.
class Faults {
 public:
  explicit Faults(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  // What the call that now begins returns at once, if not success.
  CUresult begin_call(const std::string& function) SPDLD_EXCLUDES(mutex_);
  std::uint64_t calls(const std::string& function) SPDLD_EXCLUDES(mutex_);

 private:
  const std::vector<Fault> faults_;
  Mutex mutex_;
  std::map<std::string, std::uint64_t> calls_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::fake_cuda
