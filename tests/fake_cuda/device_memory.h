// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>

namespace spdld::fake_cuda {

// Memory of all devices as this process sees it: addresses that the CPU must not touch, since each
// lies in a range without any rights, and the content of each elsewhere. Addresses are given again
// only after all others. Guarded by the lock of the driver.
class DeviceMemory {
 public:
  struct Allocation {
    std::uint64_t bytes = 0;
    CUcontext context = nullptr;
    int device = 0;  // Device::index
    std::byte* content = nullptr;
  };

  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 0 where addresses, or the memory of this machine, are used up.
  CUdeviceptr allocate(std::uint64_t bytes, CUcontext context, int device);
  // Null unless `address` is where an allocation begins.
  const Allocation* find(CUdeviceptr address) const;
  void free(CUdeviceptr address);

  // The content of a range that lies within one allocation; else null.
  std::byte* content(CUdeviceptr address, std::uint64_t bytes) const;
  // Whether a host pointer is an address of a device.
  bool holds(const void* address) const;

  const std::map<CUdeviceptr, Allocation>& allocations() const { return allocations_; }

 private:
  CUdeviceptr free_address(std::uint64_t bytes);

  CUdeviceptr base_ = 0;
  CUdeviceptr next_ = 0;
  std::map<CUdeviceptr, Allocation> allocations_;
};

}  // namespace spdld::fake_cuda
