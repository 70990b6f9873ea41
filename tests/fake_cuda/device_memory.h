// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/fake_cuda/address_ranges.h"

namespace spdld::fake_cuda {

// What cuMemAlloc allocates: addresses of devices, and the content of each elsewhere. Guarded by
// the lock of the driver.
class DeviceMemory {
 public:
  struct Allocation {
    std::uint64_t bytes = 0;
    CUcontext context = nullptr;
    int device = 0;  // Device::index
    std::byte* content = nullptr;
  };

  explicit DeviceMemory(AddressRanges& addresses) : addresses_(addresses) {}

  // 0 where addresses, or the memory of this machine, are used up.
  CUdeviceptr allocate(std::uint64_t bytes, CUcontext context, int device);
  // Null unless `address` is where an allocation begins.
  const Allocation* find(CUdeviceptr address) const;
  void free(CUdeviceptr address);

  // The content of a range that lies within one allocation; else null.
  std::byte* content(CUdeviceptr address, std::uint64_t bytes) const;

  const std::map<CUdeviceptr, Allocation>& allocations() const { return allocations_; }

 private:
  AddressRanges& addresses_;
  std::map<CUdeviceptr, Allocation> allocations_;
};

}  // namespace spdld::fake_cuda
