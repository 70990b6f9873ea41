// SPDX-License-Identifier: Apache-2.0
// A daemon that was built without the headers of the CUDA Toolkit.
#include "delivery/device_memory.h"

namespace spdld::delivery {
namespace {

class NoDevices final : public Devices {
 public:
  Result<DeviceMemoryPtr> open(const std::string&) override {
    return error(Code::kFailedPrecondition, "the daemon cannot use GPUs: " + why_none());
  }
  std::vector<DeviceFacts> facts() const override { return {}; }
  std::string why_none() const override {
    return "it was built without the headers of the CUDA Toolkit";
  }
  std::string driver_text() const override { return {}; }
};

}  // namespace

std::unique_ptr<Devices> find_devices(std::uint64_t) { return std::make_unique<NoDevices>(); }

}  // namespace spdld::delivery
