// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/fake_cuda/address_ranges.h"
#include "tests/fake_cuda/physical_memory.h"
#include "tests/fake_cuda/uses.h"

namespace spdld::fake_cuda {

// Reserved addresses of devices, and the physical memory that is mapped to some of them: of this
// process, and of no context. The CPU finds the content of an address elsewhere, with the rights
// that the device has; nothing else comes to lie there when it is unmapped. Guarded by the lock of
// the driver.
class VirtualMemory {
 public:
  struct Mapping {
    std::uint64_t bytes = 0;
    PhysicalMemoryPtr memory = nullptr;
    int rights = PROT_NONE;
    Uses uses = {};
  };

  explicit VirtualMemory(AddressRanges& addresses);
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  // 0 where addresses are used up.
  CUdeviceptr reserve(std::uint64_t bytes, std::uint64_t alignment);
  // Refuses what is not one whole reservation, and one to which something is mapped.
  CUresult free(CUdeviceptr begin, std::uint64_t bytes);

  // Maps all of memory to a range of one reservation to which nothing is mapped yet.
  CUresult map(CUdeviceptr begin, PhysicalMemoryPtr memory);
  // Unmaps what is mapped to a range of one reservation, nothing included: how many mappings that
  // were, or none where the range is no such one, or has but a part of a mapping. Ends the process
  // where a copy is not done with one.
  std::optional<std::uint64_t> unmap(CUdeviceptr begin, std::uint64_t bytes, Scheduler& scheduler);
  // Gives the device of `uuid` these rights to a range of whole mappings without gaps. Ends the
  // process where a copy is not done with what loses rights.
  CUresult set_access(CUdeviceptr begin, std::uint64_t bytes, const std::string& uuid, int rights,
                      Scheduler& scheduler);

  // The content of a range that is mapped with these rights; else null.
  std::byte* content(CUdeviceptr begin, std::uint64_t bytes, int rights) const;
  // Remembers a copy from or to what is mapped to a range; nothing if nothing is.
  void add_use(CUdeviceptr begin, std::uint64_t bytes, const Point& copy, Scheduler& scheduler);

  const std::map<CUdeviceptr, Mapping>& mappings() const { return mappings_; }

 private:
  bool in_one_reservation(CUdeviceptr begin, std::uint64_t bytes) const;
  // The first mapping that ends after an address, if there is one.
  std::map<CUdeviceptr, Mapping>::const_iterator first_after(CUdeviceptr address) const;
  // Where the mappings begin that hold the range without gaps; none if there are gaps.
  std::vector<CUdeviceptr> holders(CUdeviceptr begin, std::uint64_t bytes) const;
  std::byte* content_of(CUdeviceptr address) const;

  AddressRanges& addresses_;
  std::byte* content_ = nullptr;                       // of the first of all addresses
  std::map<CUdeviceptr, std::uint64_t> reservations_;  // bytes by where each begins
  std::map<CUdeviceptr, Mapping> mappings_;
};

}  // namespace spdld::fake_cuda
