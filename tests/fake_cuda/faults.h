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

// Counts the calls of each function, makes those fail that are to, and holds the one that is to
// wait. Thread-safe.
class Faults {
 public:
  explicit Faults(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  // What the call that now begins returns at once, if not success.
  CUresult begin_call(const std::string& function) SPDLD_EXCLUDES(mutex_);
  std::uint64_t calls(const std::string& function) SPDLD_EXCLUDES(mutex_);
  // From that call of the function on, who calls it waits for let_go().
  void hold(const std::string& function, std::uint64_t call) SPDLD_EXCLUDES(mutex_);
  void let_go() SPDLD_EXCLUDES(mutex_);
  std::uint64_t held() SPDLD_EXCLUDES(mutex_);  // calls that wait

 private:
  const std::vector<Fault> faults_;
  Mutex mutex_;
  std::map<std::string, std::uint64_t> calls_ SPDLD_GUARDED_BY(mutex_);
  CondVar let_go_;
  std::string held_function_ SPDLD_GUARDED_BY(mutex_);  // empty: none
  std::uint64_t held_from_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t held_ SPDLD_GUARDED_BY(mutex_) = 0;
};

}  // namespace spdld::fake_cuda
