// SPDX-License-Identifier: Apache-2.0
#include "tests/support/allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local int count = 0;

void* counted_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  ++count;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded);
}

void* counted(std::size_t bytes, std::size_t alignment) {
  void* const memory = counted_or_null(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// A call of its own: next to an inlined free() the compiler warns of a mismatch.
[[gnu::noinline]] void give_back(void* memory) noexcept { std::free(memory); }

}  // namespace

namespace spdld::testing {

int allocations() { return count; }

}  // namespace spdld::testing

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
