// SPDX-License-Identifier: Apache-2.0
// The functions of the driver about memory, and copies.
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/fake_cuda/driver.h"

namespace spdld::fake_cuda {
namespace {

constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
constexpr unsigned kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

}  // namespace

FAKE_CUDA_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  return with_context("cuMemAlloc", [&](Driver& driver, Context& context) {
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = driver.streams.refuse_while_capturing(); refused != CUDA_SUCCESS)
      return refused;
    const int device = context.device->index;
    if (!driver.ledger.take(device, bytes, environment().memory_bytes))
      return CUDA_ERROR_OUT_OF_MEMORY;
    *address = driver.device_memory.allocate(bytes, context.handle, device);
    if (*address != 0) return CUDA_SUCCESS;
    driver.ledger.give_back(device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  CUcontext owner = nullptr;
  const CUresult result = with_context("cuMemFree", [&](Driver& driver, Context&) {
    const DeviceMemory::Allocation* const allocation = driver.device_memory.find(address);
    if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = driver.streams.refuse_while_capturing(); refused != CUDA_SUCCESS)
      return refused;
    owner = allocation->context;
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  Driver& driver = *started_driver();
  driver.scheduler.wait_for_all(owner);
  const MutexLock lock(driver_mutex());
  // Another thread may have freed it meanwhile.
  const DeviceMemory::Allocation* const allocation = driver.device_memory.find(address);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver.ledger.give_back(allocation->device, allocation->bytes);
  driver.device_memory.free(address);
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  return with_context("cuMemHostAlloc", [&](Driver& driver, Context& context) {
    if (address == nullptr || bytes == 0 || (flags & ~kAllocFlags) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = driver.streams.refuse_while_capturing(); refused != CUDA_SUCCESS)
      return refused;
    *address = driver.host_memory.allocate(bytes, context.handle);
    if (*address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    ++driver.ledger.own().host_allocations;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemFreeHost(void* address) {
  return with_context("cuMemFreeHost", [&](Driver& driver, Context&) {
    const HostMemory::Range* const range = driver.host_memory.find(address);
    if (range == nullptr || !range->allocated) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = driver.streams.refuse_while_capturing(); refused != CUDA_SUCCESS)
      return refused;
    driver.host_memory.release(address, driver.scheduler);
    --driver.ledger.own().host_allocations;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags) {
  return with_context("cuMemHostRegister", [&](Driver& driver, Context& context) {
    if (address == nullptr || bytes == 0 || (flags & ~kRegisterFlags) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const auto supports = [&](CUdevice_attribute attribute) {
      return context.device->attribute(attribute) != 0;
    };
    if (!supports(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) ||
        ((flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 &&
         !supports(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)))
      return CUDA_ERROR_NOT_SUPPORTED;
    // There are no devices' registers here.
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = driver.streams.refuse_while_capturing(); refused != CUDA_SUCCESS)
      return refused;
    const CUresult registered =
        driver.host_memory.register_range(address, bytes, flags, context.handle);
    if (registered == CUDA_SUCCESS) {
      ++driver.ledger.own().registrations;
      driver.ledger.own().registered_bytes += bytes;
    }
    return registered;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemHostUnregister(void* address) {
  return with_context("cuMemHostUnregister", [&](Driver& driver, Context&) {
    const HostMemory::Range* const range = driver.host_memory.find(address);
    if (range == nullptr) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (range->allocated) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = driver.streams.refuse_while_capturing(); refused != CUDA_SUCCESS)
      return refused;
    --driver.ledger.own().registrations;
    driver.ledger.own().registered_bytes -= range->bytes;
    driver.host_memory.release(address, driver.scheduler);
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes,
                                               CUstream handle) {
  return with_context("cuMemcpyHtoDAsync", [&](Driver& driver, Context& context) {
    Stream* const stream = driver.streams.find(handle, context.handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (bytes == 0) return CUDA_SUCCESS;
    std::byte* const content = driver.content(to, bytes, PROT_WRITE);
    if (content == nullptr || from == nullptr || driver.addresses.holds(from))
      return CUDA_ERROR_INVALID_VALUE;
    Use use{};
    if (const CUresult refused = driver.streams.begin_use(*stream, use); refused != CUDA_SUCCESS)
      return refused;
    if (use == Use::kCaptured) return CUDA_SUCCESS;
    if (HostMemory::Range* const range = driver.host_memory.pinned(from, bytes, context.handle)) {
      const auto copy = [content, from, bytes] { std::memcpy(content, from, bytes); };
      const Point added = driver.streams.add(*stream, {}, copy);
      range->uses.add(added, driver.scheduler);
      driver.virtual_memory.add_use(to, bytes, added, driver.scheduler);
    } else {
      const auto* const begin = static_cast<const std::byte*>(from);
      const auto staged = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
      const auto copy = [content, staged] { std::memcpy(content, staged->data(), staged->size()); };
      driver.virtual_memory.add_use(to, bytes, driver.streams.add(*stream, {}, copy),
                                    driver.scheduler);
    }
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes,
                                               CUstream handle) {
  Point pageable_copy;
  CUcontext its_context = nullptr;
  const CUresult result = with_context("cuMemcpyDtoHAsync", [&](Driver& driver, Context& context) {
    Stream* const stream = driver.streams.find(handle, context.handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (bytes == 0) return CUDA_SUCCESS;
    const std::byte* const content = driver.content(from, bytes, PROT_READ);
    if (content == nullptr || to == nullptr || driver.addresses.holds(to))
      return CUDA_ERROR_INVALID_VALUE;
    HostMemory::Range* const range = driver.host_memory.pinned(to, bytes, context.handle);
    if (range != nullptr && range->read_only) return CUDA_ERROR_INVALID_VALUE;
    Use use{};
    if (const CUresult refused = driver.streams.begin_use(*stream, use); refused != CUDA_SUCCESS)
      return refused;
    if (use == Use::kCaptured) return CUDA_SUCCESS;
    const Point copy =
        driver.streams.add(*stream, {}, [to, content, bytes] { std::memcpy(to, content, bytes); });
    driver.virtual_memory.add_use(from, bytes, copy, driver.scheduler);
    if (range != nullptr) {
      range->uses.add(copy, driver.scheduler);
    } else {
      pageable_copy = copy;
      its_context = context.handle;
    }
    return CUDA_SUCCESS;
  });
  return its_context == nullptr ? result : wait_for(pageable_copy, its_context);
}

}  // namespace spdld::fake_cuda
