// SPDX-License-Identifier: Apache-2.0
#include "cuda/mapped_arenas.h"

#include <utility>

#include "cuda/handed_batch.h"
#include "cuda/mapped_arena.h"

namespace spdld::client::cuda {
namespace {

// A batch that lies where the daemon wrote it, complete before it was announced.
class MappedBatch final : public HandedBatch {
 public:
  MappedBatch(std::shared_ptr<Device> device, std::shared_ptr<DrainingLeases> leases,
              std::shared_ptr<MappedArena> arena, std::shared_ptr<Lease> lease)
      : HandedBatch(std::move(device)),
        leases_(std::move(leases)),
        arena_(std::move(arena)),
        lease_(std::move(lease)) {}
  ~MappedBatch() override {
    if (device().in_owner()) leases_->add(take_readers(), std::move(lease_), std::move(arena_));
  }
  bool is_read_only() const override { return true; }

 private:
  void await_values(CUstream) const override {}

  const std::shared_ptr<DrainingLeases> leases_;
  std::shared_ptr<MappedArena> arena_;
  std::shared_ptr<Lease> lease_;  // ends before the arena may
};

}  // namespace

MappedArenas::MappedArenas(std::shared_ptr<Device> device)
    : device_(std::move(device)), leases_(std::make_shared<DrainingLeases>(device_)) {
  const bool can_import =
      device_->attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
      device_->attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
  if (can_import) uuid_ = device_->uuid();
}

MappedArenas::~MappedArenas() {
  if (device_->in_owner()) leases_->close();
}

std::shared_ptr<DeviceArena> MappedArenas::map(UniqueFd fd, const wire::DeviceArenaFrame& frame) {
  return MappedArena::map(device_, fd, frame);
}

std::shared_ptr<DeviceBatch> MappedArenas::batch(std::shared_ptr<DeviceArena> arena,
                                                 std::shared_ptr<Lease> lease) {
  // It was map() that made it.
  return std::make_shared<MappedBatch>(
      device_, leases_, std::static_pointer_cast<MappedArena>(std::move(arena)), std::move(lease));
}

}  // namespace spdld::client::cuda
