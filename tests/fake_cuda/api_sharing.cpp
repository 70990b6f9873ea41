// SPDX-License-Identifier: Apache-2.0
// The functions of the driver about physical memory, which processes share, and its addresses.
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/errors.h"
#include "tests/fake_cuda/handles.h"

namespace spdld::fake_cuda {
namespace {

bool whole_granules(std::uint64_t number) { return number % kGranule == 0; }

// Why memory with such properties cannot be created by this process.
CUresult refuse_properties(const Driver& driver, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type == CU_MEM_LOCATION_TYPE_INVALID ||
      properties->win32HandleMetaData != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  // Compression, other uses, and memory of the host.
  if (properties->allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_NONE ||
      properties->allocFlags.usage != 0 || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_NOT_SUPPORTED;
  const Device* const device = driver.contexts.device(properties->location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) return CUDA_SUCCESS;
  const bool exportable =
      properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
      device->attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
  return exportable ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUmemGenericAllocationHandle add_handle(Driver& driver, MemoryHandle handle) {
  const auto number = reinterpret_cast<CUmemGenericAllocationHandle>(new_handle<void*>());
  driver.memory_handles[number] = std::move(handle);
  ++driver.ledger.own().handles;
  return number;
}

// Ends the process where the documentation says that what happens is undefined.
MemoryHandle& handle_of(Driver& driver, const char* function, CUmemGenericAllocationHandle number) {
  const auto found = driver.memory_handles.find(number);
  if (found == driver.memory_handles.end())
    abort_with("%s: %#llx is no handle of memory, or was released", function, number);
  return found->second;
}

// The same as with_context, for calls that change memory: stricter than driver 580, which takes
// them during a capture and without a context.
template <typename Body>
CUresult outside_captures(const char* function, Body body) {
  return with_context(function, [&](Driver& driver, Context& context) {
    const CUresult refused = driver.streams.refuse_while_capturing();
    return refused == CUDA_SUCCESS ? body(driver, context) : refused;
  });
}

}  // namespace

FAKE_CUDA_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return with_context("cuMemGetInfo", [&](Driver& driver, Context& context) {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t held = driver.ledger.held(context.device->index);
    *total = environment().memory_bytes;
    *free = *total - std::min<std::uint64_t>(held, *total);
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemGetAllocationGranularity(std::size_t* granularity,
                                                        const CUmemAllocationProp* properties,
                                                        CUmemAllocationGranularity_flags) {
  return with_context("cuMemGetAllocationGranularity", [&](Driver& driver, Context&) {
    if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult refused = refuse_properties(driver, properties);
    if (refused == CUDA_SUCCESS) *granularity = kGranule;
    return refused;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                                      const CUmemAllocationProp* properties,
                                      unsigned long long flags) {
  return outside_captures("cuMemCreate", [&](Driver& driver, Context&) {
    if (handle == nullptr || bytes == 0 || !whole_granules(bytes) || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = refuse_properties(driver, properties); refused != CUDA_SUCCESS)
      return refused;
    if (const CUresult lost = driver.contexts.lost(properties->location.id); lost != CUDA_SUCCESS)
      return lost;
    const Device& device = *driver.contexts.device(properties->location.id);
    MemoryHandle created{.exportable = properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE};
    const auto create = [&] {
      created.memory = PhysicalMemory::create(device, bytes, driver.ledger.id());
      return created.memory != nullptr;
    };
    if (!driver.ledger.take(device.index, bytes, environment().memory_bytes, create))
      return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = add_handle(driver, std::move(created));
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return outside_captures("cuMemRelease", [&](Driver& driver, Context&) {
    handle_of(driver, "cuMemRelease", handle);
    driver.memory_handles.erase(handle);
    --driver.ledger.own().handles;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemExportToShareableHandle(void* descriptor,
                                                       CUmemGenericAllocationHandle handle,
                                                       CUmemAllocationHandleType type,
                                                       unsigned long long flags) {
  return with_context("cuMemExportToShareableHandle", [&](Driver& driver, Context&) {
    if (descriptor == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const MemoryHandle& exported = handle_of(driver, "cuMemExportToShareableHandle", handle);
    if (!exported.exportable) return CUDA_ERROR_INVALID_VALUE;
    const int made = exported.memory->descriptor();
    if (made < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(descriptor) = made;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                         void* descriptor,
                                                         CUmemAllocationHandleType type) {
  return outside_captures("cuMemImportFromShareableHandle", [&](Driver& driver, Context&) {
    if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return CUDA_ERROR_INVALID_VALUE;
    auto memory =
        PhysicalMemory::import(static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor)));
    if (memory == nullptr) return CUDA_ERROR_UNKNOWN;
    const CUdevice ordinal = driver.contexts.ordinal(memory->uuid());
    if (ordinal < 0) return CUDA_ERROR_INVALID_DEVICE;
    if (const CUresult lost = driver.contexts.lost(ordinal); lost != CUDA_SUCCESS) return lost;
    const Device& device = *driver.contexts.device(ordinal);
    if (device.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 ||
        device.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0)
      return CUDA_ERROR_NOT_SUPPORTED;
    *handle = add_handle(driver, {.memory = std::move(memory), .exportable = false});
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  return with_context("cuMemGetAllocationPropertiesFromHandle", [&](Driver& driver, Context&) {
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const MemoryHandle& asked = handle_of(driver, "cuMemGetAllocationPropertiesFromHandle", handle);
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->requestedHandleTypes =
        asked.exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    properties->location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                            .id = driver.contexts.ordinal(asked.memory->uuid())};
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes,
                                              std::size_t alignment, CUdeviceptr,
                                              unsigned long long flags) {
  return outside_captures("cuMemAddressReserve", [&](Driver& driver, Context& context) {
    if (address == nullptr || bytes == 0 || !whole_granules(bytes) || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (context.device->attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0)
      return CUDA_ERROR_NOT_SUPPORTED;
    const CUdeviceptr begin =
        driver.virtual_memory.reserve(bytes, std::max<std::uint64_t>(alignment, kGranule));
    if (begin == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = begin;
    ++driver.ledger.own().reservations;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  return outside_captures("cuMemAddressFree", [&](Driver& driver, Context&) {
    const CUresult freed = driver.virtual_memory.free(address, bytes);
    if (freed == CUDA_SUCCESS) --driver.ledger.own().reservations;
    return freed;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                                   CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return outside_captures("cuMemMap", [&](Driver& driver, Context&) {
    if (bytes == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const MemoryHandle& mapped = handle_of(driver, "cuMemMap", handle);
    if (bytes != mapped.memory->bytes() || offset != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (!whole_granules(address)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver.virtual_memory.map(address, mapped.memory);
    if (result == CUDA_SUCCESS) ++driver.ledger.own().mapped_ranges;
    return result;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  return outside_captures("cuMemUnmap", [&](Driver& driver, Context&) {
    const auto unmapped = driver.virtual_memory.unmap(address, bytes, driver.scheduler);
    if (!unmapped) return CUDA_ERROR_INVALID_VALUE;
    driver.ledger.own().mapped_ranges -= *unmapped;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes,
                                         const CUmemAccessDesc* accesses, std::size_t count) {
  return outside_captures("cuMemSetAccess", [&](Driver& driver, Context&) {
    if (bytes == 0 || accesses == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      const CUmemAccessDesc& access = accesses[i];
      if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      const Device* const device = driver.contexts.device(access.location.id);
      if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (const CUresult lost = driver.contexts.lost(access.location.id); lost != CUDA_SUCCESS)
        return lost;
      int rights = PROT_NONE;
      switch (access.flags) {
        case CU_MEM_ACCESS_FLAGS_PROT_NONE: break;
        case CU_MEM_ACCESS_FLAGS_PROT_READ:
          if (!environment().read_only_access) return CUDA_ERROR_NOT_SUPPORTED;
          rights = PROT_READ;
          break;
        case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: rights = PROT_READ | PROT_WRITE; break;
        default: return CUDA_ERROR_INVALID_VALUE;
      }
      const CUresult set = driver.virtual_memory.set_access(address, bytes, text_of(device->uuid),
                                                            rights, driver.scheduler);
      if (set != CUDA_SUCCESS) return set;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace spdld::fake_cuda
