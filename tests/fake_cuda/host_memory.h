// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tests/fake_cuda/mappings.h"
#include "tests/fake_cuda/uses.h"

namespace spdld::fake_cuda {

// Host memory that devices read and write by themselves: registered, or allocated for it. Guarded
// by the lock of the driver.
class HostMemory {
 public:
  struct Range {
    std::uint64_t bytes = 0;
    CUcontext context = nullptr;
    bool portable = false;
    bool allocated = false;  // by cuMemHostAlloc, not registered
    bool read_only = false;
    std::string backing = {};  // MappedRange::backing as it was
    Uses uses = {};
  };

  CUresult register_range(void* address, std::uint64_t bytes, unsigned flags, CUcontext context);
  void* allocate(std::uint64_t bytes, CUcontext context);

  // Null unless a range begins at `address`.
  const Range* find(const void* address) const;
  // Unregisters or frees. Ends the process where the memory was unmapped before, or a copy is not
  // done with it.
  void release(const void* address, Scheduler& scheduler);

  // Of a context in which nothing can be called any more: its ranges may be unmapped as they are.
  void forget(CUcontext context);

  // The range that holds all of it and counts as pinned in the context; null: it is pageable.
  Range* pinned(const void* address, std::uint64_t bytes, CUcontext context);

  const std::map<std::uintptr_t, Range>& ranges() const { return ranges_; }

 private:
  // Ends the process if one has been unmapped.
  void check_all_mapped(const Mappings& mappings) const;
  // Null: there is none.
  const Range* overlapping(std::uintptr_t address, std::uint64_t bytes) const;

  std::map<std::uintptr_t, Range> ranges_;  // by where each begins
};

}  // namespace spdld::fake_cuda
