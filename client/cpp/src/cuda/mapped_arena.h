// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "cuda/device.h"
#include "device_arenas.h"
#include "posix/unique_fd.h"
#include "spdld/wire.h"

namespace spdld::client::cuda {

// Physical memory of another process's at addresses of this one's: for reading alone, where the
// driver grants that. The memory lives as long as any process has it mapped, the one that made it
// or not. Destroyed on any thread, when no stream reads it.
class MappedArena final : public DeviceArena {
 public:
  // Throws ConnectionError or DeviceError, and leaves nothing behind then.
  static std::shared_ptr<MappedArena> map(std::shared_ptr<Device> device, const UniqueFd& fd,
                                          const wire::DeviceArenaFrame& frame);
  ~MappedArena() override;
  MappedArena(const MappedArena&) = delete;
  MappedArena& operator=(const MappedArena&) = delete;

  const std::byte* base() const override { return reinterpret_cast<const std::byte*>(address_); }
  std::uint64_t total_bytes() const override { return bytes_; }
  // Until the process ends: a stream may read it that cannot be waited for.
  void keep_mapped() { keeps_ = true; }

 private:
  MappedArena(std::shared_ptr<Device> device, std::uint64_t bytes)
      : device_(std::move(device)), bytes_(bytes) {}
  void import(const UniqueFd& fd);
  void grant_access();

  const std::shared_ptr<Device> device_;
  const std::uint64_t bytes_;
  CUdeviceptr address_ = 0;  // 0: none is reserved
  bool mapped_ = false;
  std::atomic<bool> keeps_{false};  // any thread may say so
};

}  // namespace spdld::client::cuda
