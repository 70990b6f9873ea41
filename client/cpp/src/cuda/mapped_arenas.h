// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cuda/device.h"
#include "cuda/draining_leases.h"
#include "device_arenas.h"

namespace spdld::client::cuda {

class MappedArenas final : public DeviceArenas {
 public:
  explicit MappedArenas(std::shared_ptr<Device> device);
  ~MappedArenas() override;

  const std::string& uuid() const override { return uuid_; }
  std::shared_ptr<DeviceArena> map(UniqueFd fd, const wire::DeviceArenaFrame& frame) override;
  std::shared_ptr<DeviceBatch> batch(std::shared_ptr<DeviceArena> arena,
                                     std::shared_ptr<Lease> lease) override;
  void reap() override { leases_->reap(); }
  std::uint32_t draining() const override { return leases_->draining(); }
  std::uint32_t captured() const override { return leases_->captured(); }
  void close() override { leases_->close(); }

 private:
  const std::shared_ptr<Device> device_;
  std::string uuid_;
  const std::shared_ptr<DrainingLeases> leases_;
};

}  // namespace spdld::client::cuda
