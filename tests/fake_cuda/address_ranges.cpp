// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/address_ranges.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tests/fake_cuda/errors.h"

namespace spdld::fake_cuda {
namespace {

CUdeviceptr rounded_up(CUdeviceptr address, std::uint64_t alignment) {
  return (address + alignment - 1) & ~(alignment - 1);
}

}  // namespace

AddressRanges::AddressRanges() {
  void* const range =
      ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    abort_with("no addresses can be reserved for devices: %s", std::strerror(errno));
  base_ = reinterpret_cast<CUdeviceptr>(range);
  next_ = base_;
}

// The first gap from where the last range ended; then the first of all.
CUdeviceptr AddressRanges::take(std::uint64_t bytes, std::uint64_t alignment) {
  if (bytes > kBytes || alignment > kBytes) return 0;
  for (const CUdeviceptr from : {next_, base_}) {
    CUdeviceptr candidate = rounded_up(from, alignment);
    for (auto next = taken_.lower_bound(from);
         next != taken_.end() && next->first < candidate + bytes; ++next)
      candidate = rounded_up(next->first + next->second, alignment);
    if (candidate + bytes > base_ + kBytes) continue;
    taken_[candidate] = bytes;
    next_ = candidate + bytes;
    return candidate;
  }
  return 0;
}

bool AddressRanges::holds(const void* address) const {
  return reinterpret_cast<CUdeviceptr>(address) - base_ < kBytes;
}

}  // namespace spdld::fake_cuda
