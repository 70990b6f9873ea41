// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "batch_state.h"
#include "cuda/device.h"
#include "cuda/device_buffers.h"
#include "device_copies.h"

namespace spdld::client::cuda {

// Copies that the device itself reads from the daemon's slots (pinned), or, where the driver cannot
// register them, from one pinned buffer of ours that a slot is copied to first.
class SlotCopies final : public DeviceCopies {
 public:
  explicit SlotCopies(std::shared_ptr<Device> device);
  ~SlotCopies() override;

  bool has_room(const BatchState& batch, std::uint32_t most) const override;
  void begin(BatchState& batch) override;
  void reap() override;
  bool await_one() override;
  void finish() override;
  void free_idle() override { buffers_->free_idle(); }
  std::uint64_t staged() const override { return staged_; }
  const std::string& staged_why() const override { return staged_why_; }

 private:
  struct UnderWay {
    EventPtr over;
    std::shared_ptr<Lease> lease;  // null: the slot was left already
  };

  bool pin(Lease& lease);
  // Has memory of ours that the device may read, and that no copy reads.
  void make_staging(std::uint64_t bytes);
  // Copies values there; returns where they are.
  const std::byte* stage(const TensorView& field, std::uint64_t offset);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<DeviceBuffers> buffers_;
  CUstream stream_ = nullptr;
  std::deque<UnderWay> under_way_;  // the oldest first
  std::byte* staging_ = nullptr;
  std::uint64_t staging_bytes_ = 0;
  std::uint64_t staged_ = 0;
  std::string staged_why_;
};

}  // namespace spdld::client::cuda
