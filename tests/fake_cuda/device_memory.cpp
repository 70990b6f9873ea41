// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/device_memory.h"

#include <sys/mman.h>

#include <iterator>

namespace spdld::fake_cuda {
namespace {

constexpr std::uint64_t kAlignment = 512;

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

}  // namespace

CUdeviceptr DeviceMemory::allocate(std::uint64_t bytes, CUcontext context, int device) {
  if (bytes > AddressRanges::kBytes) return 0;
  const CUdeviceptr address = addresses_.take(rounded(bytes), kAlignment);
  if (address == 0) return 0;
  void* const content =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (content == MAP_FAILED) {
    addresses_.give_back(address);
    return 0;
  }
  allocations_[address] = {bytes, context, device, static_cast<std::byte*>(content)};
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
  addresses_.give_back(address);
}

std::byte* DeviceMemory::content(CUdeviceptr address, std::uint64_t bytes) const {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const auto& [begin, allocation] = *std::prev(after);
  const std::uint64_t offset = address - begin;
  if (offset > allocation.bytes || bytes > allocation.bytes - offset) return nullptr;
  return allocation.content + offset;
}

}  // namespace spdld::fake_cuda
