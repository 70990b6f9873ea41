// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "delivery/connection.h"
#include "pipeline/phase.h"
#include "stream/stream.h"

namespace spdld::session {

// Tells a consumer's process of the arenas, versions and schemas of its batches, and remembers
// those that it was told. Owned by the consumer and guarded by its lock.
class Told {
 public:
  explicit Told(delivery::Connection& connection) : connection_(connection) {}

  // By the answer to its attach.
  void attached(pipeline::PhasePtr phase) { phase_ = std::move(phase); }
  // Tells the process the arena `pool` of `stream`, and the version and layout of its batches as
  // `phase` names them: a stream of another job may have been made for another version of the same
  // content.
  void show(const stream::Stream& stream, const std::shared_ptr<stream::SlotPool>& pool,
            const pipeline::PhasePtr& phase, std::uint64_t steps_per_epoch);
  std::uint32_t schema_id() const { return schema_id_; }
  // A batch there has been lent to it.
  void lend(const std::shared_ptr<stream::SlotPool>& pool);
  // It has given back the batch that was the `number`th to be sent.
  void given_back(std::uint64_t number);
  // It reads in these from now on; it lets go of all others. `sent`: batches so far.
  void keep(const std::vector<std::shared_ptr<stream::SlotPool>>& pools, std::uint64_t sent);
  std::vector<std::shared_ptr<stream::SlotPool>> pools() const;
  void clear();

 private:
  struct Shown {
    std::shared_ptr<stream::SlotPool> pool;
    bool lent = false;
  };
  struct Unseen {
    std::shared_ptr<stream::SlotPool> pool;
    std::uint64_t until = 0;  // a batch behind so many is given back
  };

  void show(const std::shared_ptr<stream::SlotPool>& pool);

  delivery::Connection& connection_;
  std::vector<Shown> shown_;
  // Arenas that were shown and taken back before a batch of them was lent: the process may not have
  // looked at them yet, and no other consumer gets them before it has.
  std::vector<Unseen> unseen_;
  pipeline::PhasePtr phase_;
  std::uint32_t schema_id_ = 0;  // sent last, of that one
  bool on_gpu_ = false;          // batches of it lie there
};

}  // namespace spdld::session
