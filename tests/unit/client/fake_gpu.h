// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <deque>

#include "base/check.h"
#include "cuda/driver.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace spdld::test {

// The fake driver that this process has loaded, from where a test sees both its sides.
class FakeGpu {
 public:
  FakeGpu() {
    const cuda::Driver& driver = cuda::driver();
    SPDLD_CHECK(driver.functions != nullptr);
    functions_ = driver.functions;
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    SPDLD_CHECK(library_ != nullptr && find("fake_cuda_launch") != nullptr);
    CUcontext context = nullptr;
    check(functions_->DevicePrimaryCtxRetain(&context, 0));
    check(functions_->CtxPushCurrent(context));
  }
  ~FakeGpu() {
    CUcontext context = nullptr;
    functions_->CtxPopCurrent(&context);
    functions_->DevicePrimaryCtxRelease(0);
  }
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  const cuda::Functions& functions() const { return *functions_; }
  static void check(CUresult result) { SPDLD_CHECK(result == CUDA_SUCCESS); }

  CUstream make_stream() {
    CUstream stream = nullptr;
    check(functions_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    return stream;
  }
  void launch(CUstream stream, void (*kernel)(void*), void* argument) {
    using Launch = decltype(&fake_cuda_launch);
    check(reinterpret_cast<Launch>(find("fake_cuda_launch"))(stream, kernel, argument));
  }
  const std::uint8_t* peek(const void* address) const {
    using Peek = decltype(&fake_cuda_peek);
    return static_cast<const std::uint8_t*>(
        reinterpret_cast<Peek>(find("fake_cuda_peek"))(reinterpret_cast<CUdeviceptr>(address)));
  }
  void begin_capture(CUstream stream) { capture("fake_cuda_begin_capture", stream); }
  void end_capture(CUstream stream) { capture("fake_cuda_end_capture", stream); }
  FakeCudaCounts counts() const {
    using Counts = decltype(&fake_cuda_counts);
    FakeCudaCounts counts{};
    reinterpret_cast<Counts>(find("fake_cuda_counts"))(&counts, nullptr);
    return counts;
  }
  std::uint64_t calls(const char* function) const {
    return reinterpret_cast<decltype(&fake_cuda_calls)>(find("fake_cuda_calls"))(function);
  }
  void break_context(CUresult error) {
    using Break = decltype(&fake_cuda_break_context);
    check(reinterpret_cast<Break>(find("fake_cuda_break_context"))(0, error));
  }

 private:
  void* find(const char* name) const { return ::dlsym(library_, name); }
  void capture(const char* name, CUstream stream) {
    check(reinterpret_cast<decltype(&fake_cuda_begin_capture)>(find(name))(stream));
  }

  const cuda::Functions* functions_ = nullptr;
  void* library_ = nullptr;
};

}  // namespace spdld::test
