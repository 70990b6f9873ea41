// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/fake_cuda.h"

#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "tests/fake_cuda/driver.h"

namespace spdld::fake_cuda {
namespace {

CUresult break_device(const char* function, int ordinal, CUresult error, bool for_ever) {
  return with_driver(function, [&](Driver& driver) {
    if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= driver.contexts.devices().size())
      return CUDA_ERROR_INVALID_DEVICE;
    if (for_ever) driver.contexts.lose(ordinal, error);
    if (Context* const context = driver.contexts.of_device(ordinal)) {
      context->broken = error;
      driver.scheduler.drop(context->handle);
      driver.host_memory.forget(context->handle);
    }
    return CUDA_SUCCESS;
  });
}

// Of the physical memory that this process itself refers to.
std::uint64_t shared_bytes(const Driver& driver) {
  std::map<std::uint64_t, std::uint64_t> bytes;  // by inode
  for (const auto& [number, handle] : driver.memory_handles)
    bytes[handle.memory->inode()] = handle.memory->bytes();
  for (const auto& [begin, mapping] : driver.virtual_memory.mappings())
    bytes[mapping.memory->inode()] = mapping.memory->bytes();
  std::uint64_t all = 0;
  for (const auto& [inode, of_one] : bytes) all += of_one;
  return all;
}

CUresult launch(const char* function, CUstream handle, const std::function<void()>& kernel) {
  return with_context(function, [&](Driver& driver, Context& context) {
    Stream* const stream = driver.streams.find(handle, context.handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Use use{};
    if (const CUresult refused = driver.streams.begin_use(*stream, use); refused != CUDA_SUCCESS)
      return refused;
    if (use == Use::kRun) driver.streams.add(*stream, {}, kernel, true);
    return CUDA_SUCCESS;
  });
}

}  // namespace

FAKE_CUDA_EXPORT void fake_cuda_counts(FakeCudaCounts* of_this_process, FakeCudaCounts* of_all) {
  if (of_this_process != nullptr) *of_this_process = {};
  if (of_all != nullptr) *of_all = {};
  with_driver("fake_cuda_counts", [&](Driver& driver) {
    if (of_this_process != nullptr) {
      *of_this_process = driver.ledger.own_counts();
      of_this_process->shared_bytes = shared_bytes(driver);
    }
    if (of_all != nullptr) *of_all = driver.ledger.all_counts();
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT int fake_cuda_read_ledger(const char* path, FakeCudaCounts* counts) {
  const Ledger ledger(path, Ledger::ReadOnly{});
  if (!ledger.found()) return -1;
  *counts = ledger.all_counts();
  return 0;
}

FAKE_CUDA_EXPORT std::uint64_t fake_cuda_calls(const char* function) {
  return faults().calls(function);
}

FAKE_CUDA_EXPORT void fake_cuda_hold(const char* function, std::uint64_t call) {
  faults().hold(function, call);
}

FAKE_CUDA_EXPORT void fake_cuda_let_go() { faults().let_go(); }

FAKE_CUDA_EXPORT std::uint64_t fake_cuda_held() { return faults().held(); }

FAKE_CUDA_EXPORT CUresult fake_cuda_launch(CUstream handle, void (*kernel)(void*), void* argument) {
  return launch("fake_cuda_launch", handle, [kernel, argument] { kernel(argument); });
}

FAKE_CUDA_EXPORT CUresult fake_cuda_launch_read(CUstream handle, CUdeviceptr address, size_t bytes,
                                                uint32_t pause_us, void* out) {
  const void* const content = fake_cuda_peek(address);
  if (content == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch("fake_cuda_launch_read", handle, [=] {
    const auto* const from = static_cast<const std::byte*>(content);
    auto* const to = static_cast<std::byte*>(out);
    std::memcpy(to, from, bytes / 2);
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    std::memcpy(to + bytes / 2, from + bytes / 2, bytes - bytes / 2);
  });
}

FAKE_CUDA_EXPORT void* fake_cuda_peek(CUdeviceptr address) {
  void* content = nullptr;
  with_driver("fake_cuda_peek", [&](Driver& driver) {
    content = driver.content(address, 1, PROT_READ);
    return CUDA_SUCCESS;
  });
  return content;
}

FAKE_CUDA_EXPORT CUresult fake_cuda_begin_capture(CUstream stream) {
  return cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

FAKE_CUDA_EXPORT CUresult fake_cuda_end_capture(CUstream stream) {
  CUgraph graph = nullptr;
  return cuStreamEndCapture(stream, &graph);
}

FAKE_CUDA_EXPORT CUresult fake_cuda_break_context(int ordinal, CUresult error) {
  return break_device("fake_cuda_break_context", ordinal, error, false);
}

FAKE_CUDA_EXPORT CUresult fake_cuda_lose_device(int ordinal) {
  return break_device("fake_cuda_lose_device", ordinal, CUDA_ERROR_ECC_UNCORRECTABLE, true);
}

}  // namespace spdld::fake_cuda
