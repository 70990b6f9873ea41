// SPDX-License-Identifier: Apache-2.0
// A daemon that was built without the headers of the CUDA Toolkit.
#include "delivery/device_memory.h"

namespace spdld::delivery {
namespace {

class NoDevices final : public Devices {
 public:
  explicit NoDevices(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}
  Result<DeviceMemoryPtr> open(const std::string&) override {
    return error(Code::kFailedPrecondition, "the daemon cannot use GPUs: " + why_none());
  }
  std::vector<DeviceFacts> facts() const override { return {}; }
  std::uint64_t budget_bytes() const override { return budget_bytes_; }
  std::string why_none() const override {
    return "it was built without the headers of the CUDA Toolkit";
  }
  std::string driver_text() const override { return {}; }

 private:
  const std::uint64_t budget_bytes_;
};

}  // namespace

std::unique_ptr<Devices> find_devices(std::uint64_t budget_bytes) {
  return std::make_unique<NoDevices>(budget_bytes);
}

}  // namespace spdld::delivery
