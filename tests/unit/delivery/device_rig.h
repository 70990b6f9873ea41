// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "delivery/arena.h"
#include "delivery/device_memory.h"
#include "tests/fake_cuda/shared_memory.h"

// What children of a test do with a GPU of the fake driver as the daemon does. They end where
// something does not hold.
namespace spdld::delivery::test {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kBudget = 256 * kMiB;

// The fake makes it of the device's index.
inline std::string uuid_of(int index = 0) {
  return index == 0 ? "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"
                    : "GPU-20212223-2425-2627-2829-2a2b2c2d2e2f";
}

template <typename T>
T must(Result<T> result) {
  if (!result) fake_cuda::end_child("must", 0, result.error().message().c_str());
  return *std::move(result);
}

inline std::byte stamp(unsigned seed, std::uint64_t at) {
  return static_cast<std::byte>(seed * 131 + at * 7 + (at >> 8) * 13 + 1);
}

// Slots in main memory that are full of stamps, of seeds that are their numbers.
class Source {
 public:
  explicit Source(std::uint64_t slot_bytes, std::uint32_t slots = 4,
                  ArenaKind kind = ArenaKind::kMemfd)
      : arena_(must(Arena::create({.kind = kind, .slot_bytes = slot_bytes, .slot_count = slots}, 1,
                                  budget_))) {
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      REQUIRE(arena_->back(slot).ok());
      fill(slot, slot);
    }
  }
  void fill(std::uint32_t slot, unsigned seed) {
    const std::span<std::byte> memory = arena_->slot(slot);
    for (std::uint64_t i = 0; i < memory.size(); ++i) memory[i] = stamp(seed, i);
  }
  Arena& arena() { return *arena_; }
  const std::byte* at(std::uint32_t slot) const { return arena_->slot(slot).data(); }

 private:
  ArenaBudget budget_{1024 * kMiB};
  std::unique_ptr<Arena> arena_;
};

// An arena on a GPU as a consumer reads it.
class View {
 public:
  View(int descriptor, std::uint64_t bytes, CUdevice device = 0) : device_(device), bytes_(bytes) {
    fake_cuda::use_device(device);
    const CUmemGenericAllocationHandle handle = fake_cuda::import(descriptor);
    address_ = fake_cuda::map(handle, bytes);
    const CUmemAccessDesc access = fake_cuda::access_of(CU_MEM_ACCESS_FLAGS_PROT_READ, device);
    REQUIRE(fake_cuda::cu().MemSetAccess(address_, bytes, &access, 1) == CUDA_SUCCESS);
    fake_cuda::release(handle);
    content_ = reinterpret_cast<const std::byte*>(fake_cuda::content(address_));
    REQUIRE(fake_cuda::cu().CtxPopCurrent(nullptr) == CUDA_SUCCESS);
  }
  explicit View(const DeviceArena& arena, CUdevice device = 0)
      : View(arena.client_fd(), arena.total_bytes(), device) {}
  ~View() {
    fake_cuda::use_device(device_);  // retains once more
    fake_cuda::unmap(address_, bytes_);
    fake_cuda::cu().CtxPopCurrent(nullptr);
    fake_cuda::cu().DevicePrimaryCtxRelease(device_);
    fake_cuda::cu().DevicePrimaryCtxRelease(device_);
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  // Whether [to, to + bytes) holds what a slot has from `from` on.
  bool holds(unsigned seed, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) const {
    for (std::uint64_t i = 0; i < bytes; ++i) {
      if (content_[to + i] != stamp(seed, from + i)) return false;
    }
    return true;
  }
  std::byte byte(std::uint64_t at) const { return content_[at]; }

 private:
  const CUdevice device_;
  const std::uint64_t bytes_;
  CUdeviceptr address_ = 0;
  const std::byte* content_ = nullptr;
};

// A GPU with an arena there, and a source of copies to it.
struct Rig {
  explicit Rig(Devices& devices, std::uint64_t slot_bytes = 256 << 10, std::uint32_t slots = 4,
               int index = 0)
      : source(slot_bytes, slots),
        gpu(must(devices.open(uuid_of(index)))),
        to(must(gpu->allocate(slot_bytes * slots))),
        pinned(gpu->pin(source.arena())) {}
  ~Rig() { let_go(); }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  // All of a slot, to the same slot there.
  DeviceCopy copy_of(std::uint32_t slot) {
    const std::uint64_t bytes = source.arena().shape().slot_bytes;
    return {.pinned = pinned.get(),
            .slot = slot,
            .to = to.get(),
            .parts = {{.from = source.at(slot), .to = slot * bytes, .bytes = bytes}},
            .beside = {}};
  }
  Status copy(DeviceCopy what) {
    std::promise<Status> over;
    gpu->copy(std::move(what), [&](const Status& status) { over.set_value(status); });
    return over.get_future().get();
  }
  // As the daemon does: what a copy may still read dies on the device's thread.
  void let_go() {
    if (gpu == nullptr) return;
    std::promise<void> gone;
    gpu->post([&] {
      to.reset();
      pinned.reset();
      gone.set_value();
    });
    gone.get_future().get();
    gpu.reset();
  }

  Source source;
  DeviceMemoryPtr gpu;
  std::unique_ptr<DeviceArena> to;
  std::unique_ptr<PinnedArena> pinned;
};

// Returns once no context of this process is left: the last user's thread ends it.
inline void await_no_context() {
  while (fake_cuda::own_counts().contexts > 0) std::this_thread::yield();
}

inline bool holds_nothing(const FakeCudaCounts& counts) {
  return counts.contexts == 0 && counts.device_bytes == 0 && counts.registrations == 0 &&
         counts.streams == 0 && counts.events == 0 && counts.left_behind == 0 &&
         counts.handles == 0 && counts.reservations == 0 && counts.mapped_ranges == 0 &&
         counts.shared_bytes == 0;
}

}  // namespace spdld::delivery::test
