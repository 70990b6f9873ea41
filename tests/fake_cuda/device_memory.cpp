// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/device_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "tests/fake_cuda/errors.h"

namespace spdld::fake_cuda {
namespace {

constexpr std::uint64_t kRangeBytes = std::uint64_t{64} << 30;
constexpr std::uint64_t kAlignment = 512;

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

}  // namespace

DeviceMemory::DeviceMemory() {
  void* const range =
      ::mmap(nullptr, kRangeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    abort_with("no addresses can be reserved for devices: %s", std::strerror(errno));
  base_ = reinterpret_cast<CUdeviceptr>(range);
  next_ = base_;
}

CUdeviceptr DeviceMemory::allocate(std::uint64_t bytes, CUcontext context, int device) {
  if (bytes > kRangeBytes) return 0;
  const CUdeviceptr address = free_address(rounded(bytes));
  if (address == 0) return 0;
  void* const content =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (content == MAP_FAILED) return 0;
  allocations_[address] = {bytes, context, device, static_cast<std::byte*>(content)};
  next_ = address + rounded(bytes);
  return address;
}

const DeviceMemory::Allocation* DeviceMemory::find(CUdeviceptr address) const {
  const auto found = allocations_.find(address);
  return found == allocations_.end() ? nullptr : &found->second;
}

void DeviceMemory::free(CUdeviceptr address) {
  const auto found = allocations_.find(address);
  ::munmap(found->second.content, found->second.bytes);
  allocations_.erase(found);
}

std::byte* DeviceMemory::content(CUdeviceptr address, std::uint64_t bytes) const {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const auto& [begin, allocation] = *std::prev(after);
  const std::uint64_t offset = address - begin;
  if (offset > allocation.bytes || bytes > allocation.bytes - offset) return nullptr;
  return allocation.content + offset;
}

bool DeviceMemory::holds(const void* address) const {
  return reinterpret_cast<CUdeviceptr>(address) - base_ < kRangeBytes;
}

// The first gap from where the last allocation ended; then the first of all.
CUdeviceptr DeviceMemory::free_address(std::uint64_t bytes) {
  for (const CUdeviceptr from : {next_, base_}) {
    CUdeviceptr candidate = from;
    for (auto next = allocations_.lower_bound(from);
         next != allocations_.end() && next->first < candidate + bytes; ++next)
      candidate = next->first + rounded(next->second.bytes);
    if (candidate + bytes <= base_ + kRangeBytes) return candidate;
  }
  return 0;
}

}  // namespace spdld::fake_cuda
