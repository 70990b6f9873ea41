// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "delivery/arena.h"
#include "delivery/arena_pool.h"
#include "delivery/device_layout.h"
#include "delivery/device_memory.h"
#include "delivery/slots.h"
#include "engine/executor.h"
#include "stream/device_reserve.h"

namespace spdld::stream {

// The bytes that a job's arenas take, and their limit. Thread-safe; shared by the job and its
// pools, which may outlive it.
class ByteMeter {
 public:
  // 0: no limit.
  void set_limit(std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  std::uint64_t used() const SPDLD_EXCLUDES(mutex_);
  // The error names both figures.
  Status reserve(std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  void release(std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::uint64_t limit_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t used_ SPDLD_GUARDED_BY(mutex_) = 0;
};

// A stream that waits for a slot on a GPU, or for the memory of all of them. Called on the GPU's
// own thread, also when that memory cannot be had.
class DeviceSlotWaiter {
 public:
  virtual ~DeviceSlotWaiter() = default;
  virtual void device_slot_freed() = 0;
};

// An arena and the owners of its slots. One stream writes to them, and maybe the one that follows
// it. Shared by streams and by the consumers that were shown the arena, which keep it as long as
// their processes can read it; with the last of them the arena goes back to the arena pool, all
// slots being free by then. Thread-safe.
//
// A pool on a GPU has memory there, and an arena for the fields that stay in main memory. It is
// filled by copies from a pool of main memory.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  static Result<std::shared_ptr<SlotPool>> create(const delivery::ArenaShape& shape, uid_t uid,
                                                  delivery::ArenaPool& home,
                                                  std::shared_ptr<ByteMeter> meter,
                                                  engine::Executor& executor);
  // The pool on the GPU that batches of `layout` are copied to from this one: made unless somebody
  // has it. Under the lock of Streams, so that it waits for no driver: its memory comes from the
  // reserve, or the GPU's own thread takes it later and tells the waiter.
  Result<std::shared_ptr<SlotPool>> on(const delivery::DeviceMemoryPtr& gpu,
                                       const delivery::DeviceLayout& layout,
                                       std::uint32_t slot_count, DeviceReserve* reserve = nullptr);
  // Slots like these; of a pool on a GPU, like its part in main memory. Counted by `meter`, or else
  // as these are.
  Result<std::shared_ptr<SlotPool>> another(std::shared_ptr<ByteMeter> meter = nullptr) const;
  ~SlotPool();
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  uid_t uid() const { return uid_; }
  delivery::Arena& arena() const { return *arena_; }

  // Of a pool on a GPU alone.
  const delivery::DeviceMemoryPtr& gpu() const { return gpu_; }  // null: of main memory
  // Whether its memory there has come: nothing is copied, and no consumer is shown it, before.
  bool has_memory() const { return gpu_ == nullptr || memory_.load() == Memory::kThere; }
  // Why it does not come; ok: it is there or may come.
  Status memory_failure() const;
  delivery::DeviceArena& device_arena() const { return *device_arena_; }  // once it has come
  delivery::DevicePlace device_place(std::uint32_t slot) const {
    return {.offset = slot * device_stride_, .bytes = device_stride_};
  }
  // How the GPU reads the slots that this pool is filled from; for as long as both pools are there.
  delivery::PinnedArena& pinned() const { return *pinned_; }

  // Read-only: changes go through the pool.
  const delivery::SlotTable& slots() const { return slots_; }
  std::optional<std::uint32_t> loan() { return slots_.loan(); }
  Result<std::uint64_t> acquire(std::uint32_t slot, delivery::HolderId holder) {
    return slots_.acquire(slot, holder);
  }
  void expect(std::uint32_t slot) { slots_.expect(slot); }
  // A process that has lost its connection may still read some of the slots, which are not free
  // before it exits. A new reader could wait for them that long.
  bool has_retired() const { return slots_.has_retired(); }
  void retire(delivery::HolderId holder) { slots_.retire(holder); }
  // As the table's, and the stream that the pool serves hears of slots that become free: a slot
  // that nobody is told of may be the one that all work waits for.
  void commit(std::uint32_t slot, std::uint32_t readers);
  void abort(std::uint32_t slot);
  void forgo(std::uint32_t slot);
  void discard(std::uint32_t slot);
  void reclaim(delivery::HolderId holder);
  // True: a slot has become free, and the caller calls freed() after its more urgent work.
  [[nodiscard]] bool release(std::uint64_t lease, delivery::HolderId holder);

  // Wakes the stream for each slot that becomes free from now on, until the second call.
  void serve(engine::StreamId stream) SPDLD_EXCLUDES(served_mutex_);
  void serve_no_more(engine::StreamId stream) SPDLD_EXCLUDES(served_mutex_);
  std::size_t streams() const SPDLD_EXCLUDES(served_mutex_);  // how many these are
  void serve(std::weak_ptr<DeviceSlotWaiter> waiter) SPDLD_EXCLUDES(pins_mutex_);
  void freed() const SPDLD_EXCLUDES(pins_mutex_, served_mutex_);

 private:
  SlotPool(std::unique_ptr<delivery::Arena> arena, uid_t uid, delivery::ArenaPool& home,
           std::shared_ptr<ByteMeter> meter, engine::Executor& executor);

  std::unique_ptr<delivery::Arena> arena_;
  delivery::SlotTable slots_;
  const uid_t uid_;
  delivery::ArenaPool& home_;
  const std::shared_ptr<ByteMeter> meter_;
  engine::Executor& executor_;
  mutable Mutex served_mutex_;
  std::vector<engine::StreamId> served_ SPDLD_GUARDED_BY(served_mutex_);

  // Of a pool on a GPU.
  enum class Memory : std::uint8_t { kAwaited, kThere, kRefused };
  void await_memory(std::uint64_t bytes);
  // On the GPU's thread.
  void memory_came(Result<std::unique_ptr<delivery::DeviceArena>> memory)
      SPDLD_EXCLUDES(pins_mutex_);
  delivery::DeviceMemoryPtr gpu_;
  // The next two are written once, before this leaves kAwaited.
  std::shared_ptr<delivery::DeviceArena> device_arena_;
  Status refusal_;
  std::atomic<Memory> memory_{Memory::kAwaited};
  std::uint64_t device_stride_ = 0;
  std::weak_ptr<SlotPool> filled_from_;
  delivery::PinnedArena* pinned_ = nullptr;  // that one's

  std::vector<std::weak_ptr<SlotPool>> on_gpus_;  // filled from here

  // One for each GPU that copies from here; its registration ends with the last pool there.
  struct Pin {
    delivery::DeviceMemoryPtr gpu;
    std::unique_ptr<delivery::PinnedArena> slots;
    int pools = 0;
  };
  delivery::PinnedArena& pin(const delivery::DeviceMemoryPtr& gpu) SPDLD_EXCLUDES(pins_mutex_);
  void unpin(const delivery::DeviceMemoryPtr& gpu) SPDLD_EXCLUDES(pins_mutex_);
  mutable Mutex pins_mutex_;
  std::vector<Pin> pins_ SPDLD_GUARDED_BY(pins_mutex_);
  std::weak_ptr<DeviceSlotWaiter> waiter_ SPDLD_GUARDED_BY(pins_mutex_);
};

}  // namespace spdld::stream
