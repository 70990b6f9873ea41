// SPDX-License-Identifier: Apache-2.0
#include "tests/support/allocations.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local int count = 0;
thread_local std::int64_t held = 0;
thread_local std::int64_t most_held = 0;

void* counted_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  ++count;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  held += static_cast<std::int64_t>(malloc_usable_size(memory));
  most_held = std::max(most_held, held);
  return memory;
}

void* counted(std::size_t bytes, std::size_t alignment) {
  void* const memory = counted_or_null(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// A call of its own: next to an inlined free() the compiler warns of a mismatch.
[[gnu::noinline]] void give_back(void* memory) noexcept {
  held -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

namespace spdld::testing {

int allocations() { return count; }

HeldBytes::HeldBytes() : before_(held) { most_held = held; }
std::int64_t HeldBytes::now() const { return held - before_; }
std::int64_t HeldBytes::most() const { return most_held - before_; }

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
