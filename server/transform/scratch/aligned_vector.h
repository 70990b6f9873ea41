// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <new>
#include <vector>

namespace spdld::transform {

// Aligned within a larger block. C++'s own way leaves that to glibc, which before 2.38 cannot use
// the place of an over-aligned block again for another of its size: the daemon's memory grew with
// each job that came and went.
template <typename T>
struct AlignedAllocator {
  using value_type = T;

  AlignedAllocator() = default;
  template <typename U>
  AlignedAllocator(const AlignedAllocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= HWY_ALIGNMENT);
    void* const memory = hwy::AllocateAlignedBytes(count * sizeof(T), nullptr, nullptr);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { hwy::FreeAlignedBytes(memory, nullptr, nullptr); }

  template <typename U>
  friend bool operator==(const AlignedAllocator&, const AlignedAllocator<U>&) {
    return true;
  }
};

template <typename T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace spdld::transform
