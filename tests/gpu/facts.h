// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver.h"

// As GoogleTest prints it.
inline std::ostream& operator<<(std::ostream& out, CUresult result) {
  const spdld::cuda::Driver& driver = spdld::cuda::driver();
  return out << (driver ? spdld::cuda::error_text(*driver.functions, result)
                        : std::to_string(result));
}

namespace spdld::cuda {

// A function of the driver by its name with `cu`, or null: for what the table does not have.
void* find_function(const char* name, int version);
// A symbol of the library.
void* find_symbol(const char* name);

template <typename Function>
Function function_of(const char* name, int version) {
  return reinterpret_cast<Function>(find_function(name, version));
}

// The functions by which facts are asked, and that spdld itself does not call.
struct MoreFunctions {
  PFN_cuMemcpyDtoHAsync_v3020 MemcpyDtoHAsync;
  PFN_cuStreamBeginCapture_v10010 StreamBeginCapture;
  PFN_cuStreamEndCapture_v10000 StreamEndCapture;
  PFN_cuGraphDestroy_v10000 GraphDestroy;
  PFN_cuThreadExchangeStreamCaptureMode_v10010 ThreadExchangeStreamCaptureMode;
};
MoreFunctions more_functions();

// Skips where there is no driver. Tests that start the driver in a state of their own derive from
// this, and do so in the statement of a death test, which is a process of its own.
class DriverFacts : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (find_symbol("cuInit") == nullptr) GTEST_SKIP() << "there is no libcuda.so.1";
  }
  // Tells what the driver answers where that is not known, or drivers differ.
  static void record(const std::string& question, const std::string& answer);
};

// Has the primary context of the first device current.
class DeviceFacts : public DriverFacts {
 protected:
  void SetUp() override;
  void TearDown() override;

  int attribute(CUdevice_attribute which) const {
    int value = -1;
    EXPECT_EQ(cu().DeviceGetAttribute(&value, which, device_), CUDA_SUCCESS);
    return value;
  }
  const Functions& cu() const { return *driver().functions; }
  const MoreFunctions& more() const { return more_; }
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }

  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING);
  CUevent event();
  CUdeviceptr memory(std::size_t bytes);
  // Host memory that the driver allocated.
  std::byte* pinned(std::size_t bytes);

  // Runs `ask` in a thread that has no current context.
  static void elsewhere(const std::function<void()>& ask) { std::thread(ask).join(); }
  // The same with this context current there.
  void in_thread(const std::function<void()>& ask) {
    elsewhere([&] {
      ASSERT_EQ(cu().CtxPushCurrent(context_), CUDA_SUCCESS);
      ask();
      EXPECT_EQ(cu().CtxPopCurrent(nullptr), CUDA_SUCCESS);
    });
  }

  // Keeps a stream busy for some milliseconds, by copies alone.
  void keep_busy(CUstream stream);
  // What device memory holds, when `stream` has come so far.
  std::vector<std::uint8_t> content(CUdeviceptr from, std::size_t bytes, CUstream stream);
  // The byte that all of it has, or -1.
  int filled_with(CUdeviceptr from, std::size_t bytes, CUstream stream);

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  MoreFunctions more_{};
  CUdeviceptr busy_to_ = 0;
  std::byte* busy_from_ = nullptr;
  // Made through the above; gone at the end, if the test has not destroyed them.
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<CUdeviceptr> memory_;
  std::vector<std::byte*> pinned_;
};

// Pages of a test, mapped as it wants; unmapped at the end.
class Pages {
 public:
  // Anonymous.
  explicit Pages(std::size_t bytes, int rights = PROT_READ | PROT_WRITE)
      : Pages(bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1) {}
  // Of a file, shared.
  Pages(std::size_t bytes, int rights, int fd) : Pages(bytes, rights, MAP_SHARED, fd) {}
  ~Pages() { ::munmap(address_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* begin() const { return static_cast<std::byte*>(address_); }
  void fill(int byte) const { std::memset(address_, byte, bytes_); }

 private:
  Pages(std::size_t bytes, int rights, int flags, int fd) : bytes_(bytes) {
    address_ = ::mmap(nullptr, bytes, rights, flags, fd, 0);
    EXPECT_NE(address_, MAP_FAILED);
  }
  const std::size_t bytes_;
  void* address_;
};

// A memfd of pages full of `byte`, sealed as an arena is: a client may only read it.
int sealed_memfd(std::size_t bytes, int byte);

}  // namespace spdld::cuda
