// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/driver.h"

#include <unistd.h>

#include <atomic>
#include <vector>

namespace spdld::fake_cuda {
namespace {

// Set once, by cuInit; read by all calls without the lock, which a forked child might find taken.
std::atomic<Driver*> driver{nullptr};
std::atomic<pid_t> driver_pid{0};

void free_left_memory(Driver& driver, CUcontext context) {
  std::vector<CUdeviceptr> left;
  for (const auto& [address, allocation] : driver.device_memory.allocations()) {
    if (allocation.context == context) left.push_back(address);
  }
  for (const CUdeviceptr address : left) {
    const DeviceMemory::Allocation& allocation = *driver.device_memory.find(address);
    driver.ledger.give_back(allocation.device, allocation.bytes);
    driver.device_memory.free(address);
  }
  driver.ledger.own().left_behind += left.size();
}

void release_left_ranges(Driver& driver, CUcontext context) {
  std::vector<std::uintptr_t> left;
  for (const auto& [address, range] : driver.host_memory.ranges()) {
    if (range.context == context) left.push_back(address);
  }
  LedgerEntry& own = driver.ledger.own();
  for (const std::uintptr_t begin : left) {
    const void* const address = reinterpret_cast<const void*>(begin);
    const HostMemory::Range& range = *driver.host_memory.find(address);
    if (range.allocated) {
      --own.host_allocations;
    } else {
      --own.registrations;
      own.registered_bytes -= range.bytes;
    }
    driver.host_memory.release(address, driver.scheduler);
  }
  own.left_behind += left.size();
}

}  // namespace

Mutex& driver_mutex() {
  static Mutex* mutex = new Mutex;
  return *mutex;
}

Faults& faults() {
  static Faults* faults = new Faults(environment().faults);
  return *faults;
}

CUresult start_driver() {
  if (driver != nullptr)
    return driver_pid == ::getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  if (environment().init != CUDA_SUCCESS) return environment().init;
  if (environment().devices.empty()) return CUDA_ERROR_NO_DEVICE;
  const MutexLock lock(driver_mutex());
  if (driver == nullptr) {
    driver_pid = ::getpid();
    // Never destroyed: threads may call until the very end.
    driver = new Driver(environment());
  }
  return CUDA_SUCCESS;
}

Driver* started_driver() {
  Driver* const started = driver;
  return started != nullptr && driver_pid == ::getpid() ? started : nullptr;
}

void destroy_context(Driver& driver, CUcontext context) {
  LedgerEntry& own = driver.ledger.own();
  const std::uint64_t streams = driver.streams.destroy_all(context);
  const std::uint64_t events = std::erase_if(
      driver.events, [&](const auto& entry) { return entry.second.context == context; });
  own.streams -= streams;
  own.events -= events;
  own.left_behind += streams + events;
  free_left_memory(driver, context);
  release_left_ranges(driver, context);
  driver.contexts.destroy(context);
}

CUresult wait_for(const Point& point, CUcontext handle) {
  Driver* const driver = started_driver();
  driver->scheduler.wait(point);
  const MutexLock lock(driver_mutex());
  const Context* const context = driver->contexts.find(handle);
  return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->broken;
}

}  // namespace spdld::fake_cuda
