// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "device_arenas.h"
#include "device_copies.h"

namespace spdld::client {

// The device that a loader was opened with. The daemon decides, batch by batch, which of the two
// ways it comes there.
struct LoaderDevice {
  std::unique_ptr<DeviceArenas> arenas;
  std::unique_ptr<DeviceCopies> copies;
};

// Not of "" and "cpu": all fields come in main memory.
bool names_device(const std::string& device);

// N of "cuda:N", 0 of "cuda". Throws DeviceError for other names.
int device_ordinal(const std::string& device);

// `device` is "cuda" or "cuda:N". Throws DeviceError, with the reason and the way out, where there
// is no such device.
std::unique_ptr<LoaderDevice> open_device(const std::string& device);

}  // namespace spdld::client
