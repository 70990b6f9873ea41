// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/faults.h"

namespace spdld::fake_cuda {

CUresult Faults::begin_call(const std::string& function) {
  std::uint64_t call = 0;
  {
    const MutexLock lock(mutex_);
    call = ++calls_[function];
    ++held_;
    while (held_function_ == function && call >= held_from_) let_go_.wait(mutex_);
    --held_;
  }
  for (const Fault& fault : faults_) {
    if (fault.function == function && fault.call == call) return fault.error;
  }
  return CUDA_SUCCESS;
}

void Faults::hold(const std::string& function, std::uint64_t call) {
  const MutexLock lock(mutex_);
  held_function_ = function;
  held_from_ = call;
}

void Faults::let_go() {
  const MutexLock lock(mutex_);
  held_function_.clear();
  let_go_.notify_all();
}

std::uint64_t Faults::held() {
  const MutexLock lock(mutex_);
  return held_;
}

std::uint64_t Faults::calls(const std::string& function) {
  const MutexLock lock(mutex_);
  const auto found = calls_.find(function);
  return found == calls_.end() ? 0 : found->second;
}

}  // namespace spdld::fake_cuda
