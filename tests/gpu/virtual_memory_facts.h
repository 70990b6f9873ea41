// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <utility>
#include <vector>

#include "tests/gpu/facts.h"

namespace spdld::cuda {

constexpr auto kReadWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

CUmemAllocationProp properties_of(CUdevice device);
CUmemAccessDesc access_of(CUmemAccess_flags flags, CUdevice device);
// As the driver wants to be given it.
inline void* as_argument(int descriptor) {
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
}

// Has physical memory, addresses and mappings of the first device, whose context is current. All of
// them are gone at the end, if the test has not let go of them through this.
class VirtualMemoryFacts : public DeviceFacts {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::size_t granule() const { return granule_; }
  CUmemAllocationProp properties() const { return properties_of(device()); }

  CUmemGenericAllocationHandle create(std::size_t bytes);
  CUmemGenericAllocationHandle create() { return create(granule_); }
  void release(CUmemGenericAllocationHandle handle);
  CUdeviceptr reserve(std::size_t bytes);
  CUdeviceptr reserve() { return reserve(granule_); }
  // Maps all of a granule.
  void map(CUdeviceptr address, CUmemGenericAllocationHandle handle);
  CUdeviceptr mapped(CUmemGenericAllocationHandle handle);
  void unmap(CUdeviceptr address);
  CUresult grant(CUdeviceptr address, std::size_t bytes, CUmemAccess_flags flags);
  // A granule of new memory that can be read and written.
  CUdeviceptr usable();

  CUresult export_to(int& descriptor, CUmemGenericAllocationHandle handle) {
    return cu().MemExportToShareableHandle(&descriptor, handle,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  }
  CUresult import_from(int descriptor, CUmemGenericAllocationHandle& handle) {
    return cu().MemImportFromShareableHandle(&handle, as_argument(descriptor),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }

  // A copy from pageable memory, done when this returns.
  void write(CUdeviceptr to, std::size_t bytes, int byte);
  int read(CUdeviceptr from, std::size_t bytes);

  using DriverFacts::record;
  void record(const std::string& question, CUresult answer) {
    record(question, error_text(cu(), answer));
  }

 private:
  std::size_t granule_ = 0;
  CUstream copies_ = nullptr;
  std::vector<CUmemGenericAllocationHandle> handles_;
  std::vector<std::pair<CUdeviceptr, std::size_t>> reserved_;
  std::vector<CUdeviceptr> mapped_;
};

}  // namespace spdld::cuda
