// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/virtual_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "tests/fake_cuda/errors.h"

namespace spdld::fake_cuda {
namespace {

constexpr int kNoRightsFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void check_unused(CUdeviceptr begin, const VirtualMemory::Mapping& mapping, const char* what,
                  Scheduler& scheduler) {
  if (!mapping.uses.pending(scheduler)) return;
  abort_with("device memory at %p %s before a copy was done with it",
             reinterpret_cast<void*>(begin), what);
}

}  // namespace

VirtualMemory::VirtualMemory(AddressRanges& addresses) : addresses_(addresses) {
  void* const range = ::mmap(nullptr, AddressRanges::kBytes, PROT_NONE, kNoRightsFlags, -1, 0);
  if (range == MAP_FAILED)
    abort_with("no addresses can be reserved for content: %s", std::strerror(errno));
  content_ = static_cast<std::byte*>(range);
}

CUdeviceptr VirtualMemory::reserve(std::uint64_t bytes, std::uint64_t alignment) {
  const CUdeviceptr begin = addresses_.take(bytes, alignment);
  if (begin != 0) reservations_[begin] = bytes;
  return begin;
}

CUresult VirtualMemory::free(CUdeviceptr begin, std::uint64_t bytes) {
  const auto found = reservations_.find(begin);
  if (found == reservations_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mappings_.lower_bound(begin);
  if (mapped != mappings_.end() && mapped->first < begin + bytes) return CUDA_ERROR_INVALID_VALUE;
  reservations_.erase(found);
  addresses_.give_back(begin);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::map(CUdeviceptr begin, PhysicalMemoryPtr memory) {
  const std::uint64_t bytes = memory->bytes();
  if (!in_one_reservation(begin, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto next = first_after(begin);
  if (next != mappings_.end() && next->first < begin + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (::mmap(content_of(begin), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->fd(), 0) ==
      MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  mappings_[begin] = {.bytes = bytes, .memory = std::move(memory)};
  return CUDA_SUCCESS;
}

std::optional<std::uint64_t> VirtualMemory::unmap(CUdeviceptr begin, std::uint64_t bytes,
                                                  Scheduler& scheduler) {
  if (bytes == 0 || !in_one_reservation(begin, bytes)) return std::nullopt;
  std::vector<CUdeviceptr> found;
  for (auto next = first_after(begin); next != mappings_.end() && next->first < begin + bytes;
       ++next) {
    if (next->first < begin || next->first + next->second.bytes > begin + bytes)
      return std::nullopt;
    found.push_back(next->first);
  }
  for (const CUdeviceptr mapped : found) {
    const auto mapping = mappings_.find(mapped);
    check_unused(mapped, mapping->second, "was unmapped", scheduler);
    if (::mmap(content_of(mapped), mapping->second.bytes, PROT_NONE, kNoRightsFlags | MAP_FIXED, -1,
               0) == MAP_FAILED)
      abort_with("device memory cannot be unmapped: %s", std::strerror(errno));
    mappings_.erase(mapping);
  }
  return found.size();
}

CUresult VirtualMemory::set_access(CUdeviceptr begin, std::uint64_t bytes, const std::string& uuid,
                                   int rights, Scheduler& scheduler) {
  const auto found = holders(begin, bytes);
  if (found.empty() || found.front() != begin ||
      found.back() + mappings_.at(found.back()).bytes != begin + bytes)
    return CUDA_ERROR_INVALID_VALUE;
  for (const CUdeviceptr holder : found) {
    if (mappings_.at(holder).memory->uuid() != uuid) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (const CUdeviceptr holder : found) {
    Mapping& mapping = mappings_.at(holder);
    if ((mapping.rights & ~rights) != 0) check_unused(holder, mapping, "lost access", scheduler);
    if (::mprotect(content_of(holder), mapping.bytes, rights) != 0)
      abort_with("device memory cannot change its access: %s", std::strerror(errno));
    mapping.rights = rights;
  }
  return CUDA_SUCCESS;
}

std::byte* VirtualMemory::content(CUdeviceptr begin, std::uint64_t bytes, int rights) const {
  const auto found = holders(begin, bytes);
  const bool granted = std::all_of(found.begin(), found.end(), [&](CUdeviceptr holder) {
    return (rights & ~mappings_.at(holder).rights) == 0;
  });
  return !found.empty() && granted ? content_of(begin) : nullptr;
}

void VirtualMemory::add_use(CUdeviceptr begin, std::uint64_t bytes, const Point& copy,
                            Scheduler& scheduler) {
  for (const CUdeviceptr holder : holders(begin, bytes))
    mappings_.at(holder).uses.add(copy, scheduler);
}

bool VirtualMemory::in_one_reservation(CUdeviceptr begin, std::uint64_t bytes) const {
  const auto after = reservations_.upper_bound(begin);
  if (after == reservations_.begin()) return false;
  const auto& [reserved, reserved_bytes] = *std::prev(after);
  const std::uint64_t offset = begin - reserved;
  return offset <= reserved_bytes && bytes <= reserved_bytes - offset;
}

auto VirtualMemory::first_after(CUdeviceptr address) const
    -> std::map<CUdeviceptr, Mapping>::const_iterator {
  auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return next;
  const auto before = std::prev(next);
  return before->first + before->second.bytes > address ? before : next;
}

std::vector<CUdeviceptr> VirtualMemory::holders(CUdeviceptr begin, std::uint64_t bytes) const {
  auto next = mappings_.upper_bound(begin);
  if (next == mappings_.begin() || bytes > AddressRanges::kBytes) return {};
  --next;
  std::vector<CUdeviceptr> found;
  CUdeviceptr reached = next->first;
  for (; next != mappings_.end() && next->first == reached && reached < begin + bytes; ++next) {
    found.push_back(next->first);
    reached += next->second.bytes;
  }
  // What lies before `begin` may end before it, too.
  return reached >= begin + bytes ? found : std::vector<CUdeviceptr>();
}

std::byte* VirtualMemory::content_of(CUdeviceptr address) const {
  return content_ + (address - addresses_.base());
}

}  // namespace spdld::fake_cuda
