// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <map>

#include "base/mutex.h"
#include "tests/fake_cuda/address_ranges.h"
#include "tests/fake_cuda/contexts.h"
#include "tests/fake_cuda/device_memory.h"
#include "tests/fake_cuda/environment.h"
#include "tests/fake_cuda/faults.h"
#include "tests/fake_cuda/host_memory.h"
#include "tests/fake_cuda/ledger.h"
#include "tests/fake_cuda/physical_memory.h"
#include "tests/fake_cuda/scheduler.h"
#include "tests/fake_cuda/streams.h"
#include "tests/fake_cuda/virtual_memory.h"

#define FAKE_CUDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace spdld::fake_cuda {

struct Event {
  CUcontext context = nullptr;
  Point point = {};              // what was recorded last, unless that was captured
  CapturePtr capture = nullptr;  // in which it was recorded last
};

struct MemoryHandle {
  PhysicalMemoryPtr memory = nullptr;
  bool exportable = false;
};

// The fake between cuInit and the end of the process. Only with_driver hands it out, under its
// lock; the scheduler alone may be used without.
struct Driver {
  explicit Driver(const Environment& environment)
      : ledger(environment.ledger),
        scheduler(environment.seed, environment.lateness),
        contexts(environment.devices, ledger),
        streams(scheduler),
        device_memory(addresses),
        virtual_memory(addresses) {
    ledger.enter();
  }

  // The content of device memory, or null where a device may not do with all of it what `rights`
  // say.
  std::byte* content(CUdeviceptr address, std::uint64_t bytes, int rights) const {
    std::byte* const allocated = device_memory.content(address, bytes);
    return allocated != nullptr ? allocated : virtual_memory.content(address, bytes, rights);
  }

  Ledger ledger;
  Scheduler scheduler;
  Contexts contexts;
  Streams streams;
  std::map<CUevent, Event> events;
  AddressRanges addresses;
  DeviceMemory device_memory;
  VirtualMemory virtual_memory;
  std::map<CUmemGenericAllocationHandle, MemoryHandle> memory_handles;
  HostMemory host_memory;
};

Mutex& driver_mutex();
Faults& faults();

// Makes the driver of this process, if there is none yet.
CUresult start_driver();
// Null before cuInit, and in a child that was forked after it.
Driver* started_driver();

// Ends a context that nobody retains any more, with all that is left in it.
void destroy_context(Driver& driver, CUcontext context);

// Runs `body(Driver&)` as the call of a function: unless that is to fail, or nothing is
// initialized.
template <typename Body>
CUresult with_driver(const char* function, Body body) {
  if (const CUresult fault = faults().begin_call(function); fault != CUDA_SUCCESS) return fault;
  Driver* const driver = started_driver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const MutexLock lock(driver_mutex());
  return body(*driver);
}

// The same with `body(Driver&, Context&)`: needs a current context that is sound.
template <typename Body>
CUresult with_context(const char* function, Body body) {
  return with_driver(function, [&](Driver& driver) {
    Context* context = nullptr;
    const CUresult result = driver.contexts.current(&context);
    return result == CUDA_SUCCESS ? body(driver, *context) : result;
  });
}

// Waits, without the lock; what the context is afterwards: it may have been broken meanwhile.
CUresult wait_for(const Point& point, CUcontext context);

}  // namespace spdld::fake_cuda
