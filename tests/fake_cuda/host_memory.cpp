// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/fake_cuda/errors.h"
#include "tests/fake_cuda/mappings.h"

namespace spdld::fake_cuda {
namespace {

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

void check_mapped(const Mappings& mappings, std::uintptr_t begin, const HostMemory::Range& range) {
  const void* const address = reinterpret_cast<const void*>(begin);
  const MappedRange now = mappings.range(address, range.bytes);
  if (!now.whole || now.backing != range.backing) {
    abort_with("%llu bytes at %p were unmapped while registered: call cuMemHostUnregister first",
               static_cast<unsigned long long>(range.bytes), address);
  }
}

}  // namespace

CUresult HostMemory::register_range(void* address, std::uint64_t bytes, unsigned flags,
                                    CUcontext context) {
  const Mappings mappings;
  check_all_mapped(mappings);
  if (const Range* const there = overlapping(number_of(address), bytes)) {
    return there->allocated ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  MappedRange mapped = mappings.range(address, bytes);
  if (!mapped.whole || (!mapped.writable && !read_only)) return CUDA_ERROR_INVALID_VALUE;
  ranges_[number_of(address)] = {
      .bytes = bytes,
      .context = context,
      .portable = (flags & CU_MEMHOSTREGISTER_PORTABLE) != 0,
      .read_only = read_only,
      .backing = std::move(mapped.backing),
  };
  return CUDA_SUCCESS;
}

void* HostMemory::allocate(std::uint64_t bytes, CUcontext context) {
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  ranges_[number_of(address)] = {
      .bytes = bytes, .context = context, .portable = true, .allocated = true};
  return address;
}

const HostMemory::Range* HostMemory::find(const void* address) const {
  const auto found = ranges_.find(number_of(address));
  return found == ranges_.end() ? nullptr : &found->second;
}

void HostMemory::release(const void* address, Scheduler& scheduler) {
  check_all_mapped(Mappings());
  const auto found = ranges_.find(number_of(address));
  if (found->second.uses.pending(scheduler))
    abort_with("host memory at %p was let go before a copy was done with it", address);
  if (found->second.allocated) ::munmap(const_cast<void*>(address), found->second.bytes);
  ranges_.erase(found);
}

HostMemory::Range* HostMemory::pinned(const void* address, std::uint64_t bytes, CUcontext context) {
  const auto after = ranges_.upper_bound(number_of(address));
  if (after == ranges_.begin()) return nullptr;
  auto& [begin, range] = *std::prev(after);
  const std::uint64_t offset = number_of(address) - begin;
  if (offset > range.bytes || bytes > range.bytes - offset) return nullptr;
  return range.portable || range.context == context ? &range : nullptr;
}

void HostMemory::forget(CUcontext context) {
  std::erase_if(ranges_, [&](const auto& range) { return range.second.context == context; });
}

void HostMemory::check_all_mapped(const Mappings& mappings) const {
  for (const auto& [begin, range] : ranges_) {
    if (!range.allocated) check_mapped(mappings, begin, range);
  }
}

const HostMemory::Range* HostMemory::overlapping(std::uintptr_t address,
                                                 std::uint64_t bytes) const {
  const auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first < address + bytes) return &next->second;
  if (next == ranges_.begin()) return nullptr;
  const auto& [begin, range] = *std::prev(next);
  return begin + range.bytes > address ? &range : nullptr;
}

}  // namespace spdld::fake_cuda
