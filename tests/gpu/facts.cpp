// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/facts.h"

#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <cstdio>

namespace spdld::cuda {
namespace {

constexpr std::size_t kBusyBytes = 16 << 20;
constexpr int kBusyCopies = 6;

}  // namespace

void* find_symbol(const char* name) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? ::dlsym(library, name) : nullptr;
}

void* find_function(const char* name, int version) {
  const auto get =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(find_symbol("cuGetProcAddress_v2"));
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (get == nullptr ||
      get(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS)
    return nullptr;
  return found;
}

MoreFunctions more_functions() {
  return {
      function_of<PFN_cuMemcpyDtoHAsync_v3020>("cuMemcpyDtoHAsync", 3020),
      function_of<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture", 10010),
      function_of<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture", 10000),
      function_of<PFN_cuGraphDestroy_v10000>("cuGraphDestroy", 10000),
      function_of<PFN_cuThreadExchangeStreamCaptureMode_v10010>("cuThreadExchangeStreamCaptureMode",
                                                                10010),
  };
}

// Flushed, since a new process ends without.
void DriverFacts::record(const std::string& question, const std::string& answer) {
  std::printf("[  ANSWER  ] %s: %s\n", question.c_str(), answer.c_str());
  std::fflush(stdout);
}

void DeviceFacts::SetUp() {
  DriverFacts::SetUp();
  if (IsSkipped()) return;
  if (!driver()) GTEST_SKIP() << driver().why_not;
  more_ = more_functions();
  if (more_.MemcpyDtoHAsync == nullptr) GTEST_SKIP() << "the driver is older than CUDA 12";
  ASSERT_EQ(cu().DeviceGet(&device_, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().DevicePrimaryCtxRetain(&context_, device_), CUDA_SUCCESS);
  ASSERT_EQ(cu().CtxPushCurrent(context_), CUDA_SUCCESS);
}

void DeviceFacts::TearDown() {
  if (context_ == nullptr) return;
  for (const CUstream stream : streams_) {
    EXPECT_EQ(cu().StreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(cu().StreamDestroy(stream), CUDA_SUCCESS);
  }
  for (const CUevent event : events_) EXPECT_EQ(cu().EventDestroy(event), CUDA_SUCCESS);
  for (const CUdeviceptr address : memory_) EXPECT_EQ(cu().MemFree(address), CUDA_SUCCESS);
  for (std::byte* const address : pinned_) EXPECT_EQ(cu().MemFreeHost(address), CUDA_SUCCESS);
  EXPECT_EQ(cu().CtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu().DevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
}

CUstream DeviceFacts::stream(unsigned flags) {
  CUstream made = nullptr;
  EXPECT_EQ(cu().StreamCreateWithPriority(&made, flags, 0), CUDA_SUCCESS);
  streams_.push_back(made);
  return made;
}

CUevent DeviceFacts::event() {
  CUevent made = nullptr;
  EXPECT_EQ(cu().EventCreate(&made, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  events_.push_back(made);
  return made;
}

CUdeviceptr DeviceFacts::memory(std::size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cu().MemAlloc(&address, bytes), CUDA_SUCCESS);
  memory_.push_back(address);
  return address;
}

std::byte* DeviceFacts::pinned(std::size_t bytes) {
  void* address = nullptr;
  EXPECT_EQ(cu().MemHostAlloc(&address, bytes, 0), CUDA_SUCCESS);
  pinned_.push_back(static_cast<std::byte*>(address));
  return pinned_.back();
}

void DeviceFacts::keep_busy(CUstream stream) {
  if (busy_to_ == 0) {
    busy_to_ = memory(kBusyBytes);
    busy_from_ = pinned(kBusyBytes);
    std::memset(busy_from_, 0, kBusyBytes);
  }
  for (int copy = 0; copy < kBusyCopies; ++copy)
    EXPECT_EQ(cu().MemcpyHtoDAsync(busy_to_, busy_from_, kBusyBytes, stream), CUDA_SUCCESS);
}

std::vector<std::uint8_t> DeviceFacts::content(CUdeviceptr from, std::size_t bytes,
                                               CUstream stream) {
  std::vector<std::uint8_t> found(bytes);
  EXPECT_EQ(more_.MemcpyDtoHAsync(found.data(), from, bytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(cu().StreamSynchronize(stream), CUDA_SUCCESS);
  return found;
}

int DeviceFacts::filled_with(CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const auto found = content(from, bytes, stream);
  const bool alike = std::all_of(found.begin(), found.end(),
                                 [&](std::uint8_t byte) { return byte == found.front(); });
  return alike ? found.front() : -1;
}

int sealed_memfd(std::size_t bytes, int byte) {
  const int fd = ::memfd_create("facts", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
  const Pages pages(bytes, PROT_READ | PROT_WRITE, fd);
  pages.fill(byte);
  EXPECT_EQ(
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL), 0);
  return fd;
}

}  // namespace spdld::cuda
