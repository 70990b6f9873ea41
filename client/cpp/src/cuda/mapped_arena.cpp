// SPDX-License-Identifier: Apache-2.0
#include "cuda/mapped_arena.h"

#include <string>

#include "spdld/error.h"
#include "text.h"

namespace spdld::client::cuda {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw ConnectionError(kDataLoss,
                        join("the daemon sent memory of a GPU that cannot be used: ", why));
}

// Properties of the memory that a daemon makes on the device.
CUmemAllocationProp properties_on(const Device& device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.get()};
  return properties;
}

void check_size(const Device& device, std::uint64_t bytes) {
  const CUmemAllocationProp properties = properties_on(device);
  std::size_t granularity = 0;
  device.check(device.functions().MemGetAllocationGranularity(&granularity, &properties,
                                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               "asking for the granularity of its memory");
  if (bytes == 0) refuse("it has no bytes");
  if (granularity == 0 || bytes % granularity != 0)
    refuse(join("it has ", bytes, " bytes, which is no multiple of ", granularity));
  std::size_t all = 0;
  device.check(device.functions().DeviceTotalMem(&all, device.get()), "asking for its memory");
  if (bytes > all) refuse(join("it has ", bytes, " bytes, and the GPU has ", all));
}

// A reference to memory of another process's, which is there as long as this is or it is mapped.
class Imported {
 public:
  Imported(const Device& device, const UniqueFd& fd) : device_(device) {
    const CUresult result = device.functions().MemImportFromShareableHandle(
        &handle_, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.get())),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    // Driver 580 answers CUDA_ERROR_UNKNOWN to a descriptor of something else.
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
        result == CUDA_ERROR_UNKNOWN)
      refuse(join("the driver does not take its file descriptor as memory of a GPU: ",
                  spdld::cuda::error_text(device.functions(), result)));
    device.check(result, "importing the daemon's memory");
  }
  ~Imported() {
    if (handle_ != 0) device_.functions().MemRelease(handle_);
  }
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;

  CUmemGenericAllocationHandle get() const { return handle_; }
  void release() {
    const CUresult result = device_.functions().MemRelease(handle_);
    device_.check(result, "letting go of the handle of the daemon's memory");
    handle_ = 0;
  }

 private:
  const Device& device_;
  CUmemGenericAllocationHandle handle_ = 0;
};

}  // namespace

std::shared_ptr<MappedArena> MappedArena::map(std::shared_ptr<Device> device, const UniqueFd& fd,
                                              const wire::DeviceArenaFrame& frame) {
  if (frame.kind != wire::DeviceMemoryKind::kVmm) {
    refuse(join("its kind is ", static_cast<std::uint32_t>(frame.kind),
                ", which this client does not know; upgrade it"));
  }
  const Current current(*device);
  check_size(*device, frame.total_bytes);
  std::shared_ptr<MappedArena> arena(new MappedArena(std::move(device), frame.total_bytes));
  arena->import(fd);
  arena->grant_access();
  return arena;
}

void MappedArena::import(const UniqueFd& fd) {
  Imported memory(*device_, fd);
  CUmemAllocationProp found{};
  device_->check(device_->functions().MemGetAllocationPropertiesFromHandle(&found, memory.get()),
                 "asking where the daemon's memory is");
  if (found.location.type != CU_MEM_LOCATION_TYPE_DEVICE || found.location.id != device_->get())
    refuse(join("it is not on cuda:", device_->ordinal(), ", which the loader was opened with"));
  device_->check(device_->functions().MemAddressReserve(&address_, bytes_, 0, 0, 0),
                 "reserving addresses for the daemon's memory");
  const CUresult mapped = device_->functions().MemMap(address_, bytes_, 0, memory.get(), 0);
  // Driver 580 does not support another size than the memory's; others may call it invalid.
  if (mapped == CUDA_ERROR_INVALID_VALUE || mapped == CUDA_ERROR_NOT_SUPPORTED)
    refuse(join("it is not as large as announced: ",
                spdld::cuda::error_text(device_->functions(), mapped)));
  device_->check(mapped, "mapping the daemon's memory");
  mapped_ = true;
  memory.release();
}

void MappedArena::grant_access() {
  CUmemAccessDesc access{};
  access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_->get()};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  const auto grant = [&] {
    return device_->functions().MemSetAccess(address_, bytes_, &access, 1);
  };
  CUresult result = grant();
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE) {
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;  // not all drivers grant the one alone
    result = grant();
  }
  device_->check(result, "asking for access to the daemon's memory");
}

MappedArena::~MappedArena() {
  if (address_ == 0 || keeps_.load(std::memory_order_relaxed) || !device_->in_owner()) return;
  const Current current(*device_);
  if (!current) return;  // the process ends
  if (mapped_) device_->functions().MemUnmap(address_, bytes_);
  device_->functions().MemAddressFree(address_, bytes_);
}

}  // namespace spdld::client::cuda
