// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "batch_state.h"
#include "channel.h"
#include "device_arenas.h"
#include "mapping.h"
#include "posix/unique_fd.h"
#include "spdld/wire.h"

namespace spdld::client {

// What the daemon says of the version of the pipeline whose batches come.
struct Facts {
  std::uint64_t items = 0;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t batch_size = 0;
  std::uint32_t pipeline_version = 0;
  std::uint32_t credits = 0;  // batches that the process may hold; 0: not known
  std::string order_digest = {};
};

// What one connection's daemon has announced: the memory that batches lie in, how they lie there,
// and what makes them. Owned by Link, used by its thread alone. Bounded: who announces more than a
// daemon needs is not believed. Throws ConnectionError for what makes no sense.
class Announced {
 public:
  // `device` is the loader's and outlives it; null: there is none, and no memory of a GPU is taken.
  explicit Announced(DeviceArenas* device) : device_(device) {}

  static constexpr std::size_t kMaxArenas = 64;
  static constexpr std::size_t kMaxSchemas = 64;

  void open_arena(std::span<const std::byte> frame, UniqueFd fd);
  // Memory of a GPU beside an arena that was opened before. Throws DeviceError, too.
  void add_device_memory(std::span<const std::byte> frame, UniqueFd fd);
  // An arena that is not there is none to forget. One that leases are in stays mapped for them.
  void retire_arena(std::span<const std::byte> frame);
  void add_schema(std::span<const std::byte> frame);
  // Batches from here on are of another version, or another variant of this one.
  void change_version(std::span<const std::byte> frame);

  // Of the batches that come now. The number changes with each change_version().
  const Facts& facts() const { return facts_; }
  Facts& facts() { return facts_; }
  std::uint32_t facts_number() const { return facts_number_; }

  std::shared_ptr<BatchState> batch(const std::shared_ptr<Channel>& channel,
                                    const wire::BatchFrame& frame) const;
  std::shared_ptr<BatchState> batch(const std::shared_ptr<Channel>& channel,
                                    const wire::DeviceBatchFrame& frame) const;

 private:
  struct Arena {
    std::uint32_t id = 0;
    std::shared_ptr<Mapping> memory;
    std::shared_ptr<DeviceArena> device_memory;  // null: it has none
  };

  // Throws ConnectionError unless both were announced and go together.
  const Arena& arena_of(const wire::BatchFrame& frame) const;
  std::shared_ptr<const Schema> schema_of(const wire::BatchFrame& frame) const;

  DeviceArenas* const device_;
  Facts facts_;
  std::uint32_t facts_number_ = 0;
  std::vector<Arena> arenas_;                           // the oldest first
  std::vector<std::shared_ptr<const Schema>> schemas_;  // likewise
};

}  // namespace spdld::client
