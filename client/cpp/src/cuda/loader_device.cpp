// SPDX-License-Identifier: Apache-2.0
#include "loader_device.h"

#include "cuda/device.h"
#include "cuda/mapped_arenas.h"
#include "cuda/slot_copies.h"

namespace spdld::client {

std::unique_ptr<LoaderDevice> open_device(const std::string& device) {
  const auto opened = cuda::Device::open(device_ordinal(device));
  auto made = std::make_unique<LoaderDevice>();
  made->arenas = std::make_unique<cuda::MappedArenas>(opened);
  made->copies = std::make_unique<cuda::SlotCopies>(opened);
  return made;
}

}  // namespace spdld::client
