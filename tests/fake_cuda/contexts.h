// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <map>
#include <string>
#include <vector>

#include "tests/fake_cuda/devices.h"
#include "tests/fake_cuda/ledger.h"

namespace spdld::fake_cuda {

struct Context {
  CUcontext handle = nullptr;
  const Device* device = nullptr;
  int retains = 0;
  CUresult broken = CUDA_SUCCESS;  // what all calls return once it is set
};

// The primary contexts of this process, and which one each thread has current. Guarded by the lock
// of the driver.
class Contexts {
 public:
  Contexts(const std::vector<Device>& devices, Ledger& ledger)
      : devices_(devices), ledger_(ledger), lost_(devices.size(), CUDA_SUCCESS) {}

  const std::vector<Device>& devices() const { return devices_; }

  CUresult retain(CUdevice device, CUcontext* context);
  // Of the last one, `*last` is the context; it lives on until `destroy`.
  CUresult release(CUdevice device, Context** last);
  void destroy(CUcontext context);

  CUresult push(CUcontext context);
  CUresult pop(CUcontext* context);
  // That of the calling thread, if it is alive and sound.
  CUresult current(Context** context);

  // Null once it is destroyed.
  Context* find(CUcontext context);
  // The living context of a device, or null.
  Context* of_device(CUdevice device);

  void lose(CUdevice device, CUresult error) { lost_[device] = error; }
  CUresult lost(CUdevice device) const { return lost_[device]; }

  // Null where there is no such device.
  const Device* device(CUdevice ordinal) const;
  // Of the device that has this UUID, or -1.
  CUdevice ordinal(const std::string& uuid) const;

 private:
  const std::vector<Device>& devices_;
  Ledger& ledger_;
  std::vector<CUresult> lost_;  // by ordinal
  std::map<CUcontext, Context> contexts_;
};

}  // namespace spdld::fake_cuda
