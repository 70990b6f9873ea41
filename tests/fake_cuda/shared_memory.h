// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "tests/fake_cuda/child.h"

namespace spdld::fake_cuda {

constexpr std::size_t kGranuleBytes = 2 << 20;

// What children do with physical memory of a device, by the functions of the driver. They end where
// something fails.

CUmemAllocationProp properties_of(CUdevice device = 0);
CUmemAccessDesc access_of(CUmemAccess_flags flags, CUdevice device = 0);

CUmemGenericAllocationHandle create(std::size_t bytes = kGranuleBytes);
void release(CUmemGenericAllocationHandle handle);
int export_descriptor(CUmemGenericAllocationHandle handle);
CUresult try_import(int descriptor, CUmemGenericAllocationHandle& handle);
CUmemGenericAllocationHandle import(int descriptor);

CUdeviceptr reserve(std::size_t bytes = kGranuleBytes);
// Reserves addresses for it, and maps it there.
CUdeviceptr map(CUmemGenericAllocationHandle handle, std::size_t bytes = kGranuleBytes);
CUresult grant(CUdeviceptr address, CUmemAccess_flags flags, std::size_t bytes = kGranuleBytes);
// The same, with this access granted.
CUdeviceptr map_with(CUmemGenericAllocationHandle handle, CUmemAccess_flags flags,
                     std::size_t bytes = kGranuleBytes);
// Frees its addresses, too.
void unmap(CUdeviceptr address, std::size_t bytes = kGranuleBytes);

// A copy to device memory from pageable memory that is all `byte`; the call's result.
CUresult fill(CUdeviceptr to, int byte, std::size_t bytes, CUstream stream);
char* content(CUdeviceptr address);

std::size_t free_bytes();

}  // namespace spdld::fake_cuda
