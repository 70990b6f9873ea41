// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "delivery/connection.h"
#include "job/state.h"
#include "pipeline/phase.h"
#include "stream/stream.h"

namespace spdld::session {

// The batches that a consumer's process may be reading, and the arenas, versions and schemas that
// it was told for that. A value without a lock of its own, under that of its consumer.
class Leases {
 public:
  using Pools = std::vector<std::shared_ptr<stream::SlotPool>>;
  struct Lease {
    std::uint64_t id = 0;
    job::Turn turn = 0;
    std::uint32_t seek = 0;  // the serial of the loop's last seek when the batch was sent
    std::shared_ptr<stream::SlotPool> pool;
    std::uint64_t number = 0;  // of the batches that were sent
  };

  explicit Leases(delivery::Connection& connection) : connection_(connection) {}

  // The answer to its attach has told it the version, and how many batches it may hold.
  void attached(pipeline::PhasePtr phase, std::uint32_t credits) {
    phase_ = std::move(phase);
    credits_ = credits;
  }
  // Tells the process the arena `pool` of `stream`, and the version and layout of its batches as
  // `phase` names them: a stream of another job may have been made for another version of the same
  // content.
  void show(const stream::Stream& stream, const std::shared_ptr<stream::SlotPool>& pool,
            const pipeline::PhasePtr& phase, std::uint64_t steps_per_epoch, std::uint32_t credits);
  std::uint32_t schema_id() const { return schema_id_; }
  // The process reads in these arenas from now on; it lets go of all others.
  void keep(const Pools& pools);
  void add(Lease lease, std::uint64_t rows);
  // None, and counted: no lease has this id. A late or repeated release harms nobody.
  std::optional<Lease> take(std::uint64_t id);
  void clear();

  // The arenas that the process knows, or has a lease of.
  Pools pools() const;
  std::uint32_t size() const { return static_cast<std::uint32_t>(leases_.size()); }
  // A loop that is at `turn`, behind the seek of this serial, has given back all turns before.
  job::Turn released(job::Turn turn, std::uint32_t seek) const;
  std::uint64_t batches() const { return batches_; }  // that were sent
  std::uint64_t rows() const { return rows_; }
  std::uint64_t bad_releases() const { return bad_releases_; }

 private:
  struct Shown {
    std::shared_ptr<stream::SlotPool> pool;
    bool lent = false;
  };
  struct Unseen {
    std::shared_ptr<stream::SlotPool> pool;
    std::uint64_t until = 0;  // a batch behind so many is given back
  };

  delivery::Connection& connection_;
  std::vector<Shown> shown_;
  // Arenas that were shown and taken back before a batch of them was lent: the process may not have
  // looked at them yet, and no other consumer gets them before it has.
  std::vector<Unseen> unseen_;
  pipeline::PhasePtr phase_;
  std::uint32_t credits_ = 0;    // that the process was told last
  std::uint32_t schema_id_ = 0;  // sent last, of that phase
  bool on_gpu_ = false;          // batches of it lie there
  std::vector<Lease> leases_;
  std::uint64_t batches_ = 0;
  std::uint64_t rows_ = 0;
  std::uint64_t bad_releases_ = 0;
};

}  // namespace spdld::session
