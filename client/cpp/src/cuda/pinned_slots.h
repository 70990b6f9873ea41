// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "cuda/device.h"
#include "mapping.h"

namespace spdld::client::cuda {

// The slots of one arena that the device may read by itself: each is registered with the driver
// when it is first copied from, and given back before the arena is unmapped. Used by the loader's
// thread alone, and destroyed on any.
class PinnedSlots final : public MappingUse {
 public:
  explicit PinnedSlots(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~PinnedSlots() override;

  // Whether the device may read the slot that begins there. False: the driver refuses, and `why`
  // says so.
  bool pin(const std::byte* slot, std::uint64_t bytes, std::string& why);

 private:
  const std::shared_ptr<Device> device_;
  std::unordered_set<const std::byte*> pinned_;
};

}  // namespace spdld::client::cuda
