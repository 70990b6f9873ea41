// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "delivery/memory_probe.h"
#include "posix/unique_fd.h"
#include "spdld/arena.h"
#include "spdld/wire.h"

namespace spdld::delivery {

using ArenaKind = wire::ArenaKind;

std::string_view arena_kind_name(ArenaKind kind);  // "memfd", as in the daemon's YAML

struct ArenaShape {
  ArenaKind kind = ArenaKind::kMemfd;
  std::uint64_t slot_bytes = 0;
  std::uint32_t slot_count = 0;

  friend bool operator==(const ArenaShape&, const ArenaShape&) = default;
};

// What an arena of this shape takes, header and page rounding included; 0: no such arena can be.
std::uint64_t arena_bytes(const ArenaShape& shape);

// One mapping that the daemon writes and consumers read: owns the memory, its fd and its part of
// the budget. create() takes no pages and so no time, whatever the size: it may be called under
// locks. A slot's pages are taken and zeroed by back(), before it is first written: writing never
// meets SIGBUS. What there is no room for is create()'s error, or back()'s if others fill the
// machine (or, with posix, /dev/shm) in between; huge pages are reserved by create(). Immutable but
// for the slots; who may write one when is SlotTable's matter. Consumers that still map it keep the
// memory alive after it is gone.
class Arena {
 public:
  // `uid` is the user whose consumers are to read it.
  static Result<std::unique_ptr<Arena>> create(const ArenaShape& shape, std::uint32_t arena_id,
                                               ArenaBudget& budget, uid_t uid = 0);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const ArenaShape& shape() const { return shape_; }
  std::uint32_t id() const { return id_; }
  std::uint64_t total_bytes() const { return total_bytes_; }
  std::span<const std::uint8_t, 16> generation() const;

  // Before the slot is written, by whoever has it on loan and under no lock: cheap but for the
  // first time, which zeroes the slot's pages.
  Status back(std::uint32_t index);
  std::span<std::byte> slot(std::uint32_t index) const;  // slot_bytes long
  std::uint64_t slot_offset(std::uint32_t index) const;  // from the arena's first byte

  // To be sent to consumers: they can read through it and do nothing else.
  int client_fd() const { return client_fd_ ? client_fd_.get() : fd_.get(); }

 private:
  friend class ArenaPool;
  Arena() = default;
  // Others may have its part; its memory follows soon.
  void give_up_budget() { reservation_.reset(); }
  void write_header();                  // with a new generation
  void rename(std::uint32_t arena_id);  // for other consumers

  ArenaShape shape_;
  std::uint32_t id_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t slots_offset_ = 0;
  std::uint64_t slot_stride_ = 0;
  UniqueFd fd_;
  UniqueFd client_fd_;  // posix alone: opened read-only
  std::byte* base_ = nullptr;
  std::vector<std::uint8_t> backed_;  // by slot; each is its borrower's alone
  ArenaBudget::Reservation reservation_;
  ArenaBudget::ShmPromise shm_;  // posix alone: what slots have yet to take of /dev/shm
};

}  // namespace spdld::delivery
