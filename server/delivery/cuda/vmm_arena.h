// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "delivery/cuda/context.h"
#include "delivery/device_memory.h"
#include "posix/unique_fd.h"

namespace spdld::delivery::cuda {

// What all arenas of one GPU take together, and may take. Shared with the arenas.
struct VramBudget {
  explicit VramBudget(std::uint64_t bytes) : limit(bytes) {}
  const std::uint64_t limit;
  std::atomic<std::uint64_t> used{0};
};

// Physical memory of a GPU (cuMemCreate), mapped here for copies to it and exported as a POSIX file
// descriptor. What cannot be let go of in the end counts against the budget for ever.
class VmmArena final : public DeviceArena {
 public:
  // `bytes` is rounded up to what the GPU deals in. What was made is undone if a step fails.
  static Result<std::unique_ptr<VmmArena>> make(std::uint64_t bytes,
                                                std::shared_ptr<const Context> context,
                                                std::shared_ptr<VramBudget> budget);
  ~VmmArena() override;

  wire::DeviceMemoryKind kind() const override { return wire::DeviceMemoryKind::kVmm; }
  std::uint64_t total_bytes() const override { return bytes_; }
  int client_fd() const override { return fd_.get(); }
  CUdeviceptr base() const { return base_; }

 private:
  VmmArena(std::shared_ptr<const Context> context, std::shared_ptr<VramBudget> budget)
      : context_(std::move(context)), budget_(std::move(budget)) {}
  Status take(std::uint64_t bytes);
  Status reserve(std::uint64_t bytes);
  Status no_room(std::uint64_t bytes) const;
  Status let_go();

  const std::shared_ptr<const Context> context_;
  const std::shared_ptr<VramBudget> budget_;
  std::uint64_t bytes_ = 0;  // of the budget, once they are reserved
  CUmemGenericAllocationHandle memory_ = 0;
  bool created_ = false;
  CUdeviceptr base_ = 0;
  bool mapped_ = false;
  UniqueFd fd_;
};

}  // namespace spdld::delivery::cuda
