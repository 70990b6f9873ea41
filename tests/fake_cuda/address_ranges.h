// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

namespace spdld::fake_cuda {

// The addresses of all devices as this process sees them: one range without any rights, so that a
// CPU that touches one of them dies. Addresses are given again only after all others. Guarded by
// the lock of the driver.
class AddressRanges {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{64} << 30;

  AddressRanges();
  AddressRanges(const AddressRanges&) = delete;
  AddressRanges& operator=(const AddressRanges&) = delete;

  // Takes a range that begins at a multiple of `alignment`, a power of two; 0 where they are used
  // up.
  CUdeviceptr take(std::uint64_t bytes, std::uint64_t alignment);
  void give_back(CUdeviceptr begin) { taken_.erase(begin); }

  CUdeviceptr base() const { return base_; }
  // Whether a host pointer is an address of a device.
  bool holds(const void* address) const;

 private:
  CUdeviceptr base_ = 0;
  CUdeviceptr next_ = 0;  // where the range that was taken last ends
  std::map<CUdeviceptr, std::uint64_t> taken_;
};

}  // namespace spdld::fake_cuda
