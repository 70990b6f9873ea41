// SPDX-License-Identifier: Apache-2.0
#include "session/leases.h"

#include <algorithm>
#include <span>
#include <utility>

namespace spdld::session {

void Leases::show(const stream::Stream& stream, const std::shared_ptr<stream::SlotPool>& pool,
                  const pipeline::PhasePtr& phase, std::uint64_t steps_per_epoch,
                  std::uint32_t credits) {
  const bool on_gpu = pool->gpu() != nullptr;
  const auto same = [&](const Shown& known) { return known.pool == pool; };
  if (std::none_of(shown_.begin(), shown_.end(), same)) {
    connection_.send_arena_open(pool->arena());
    if (on_gpu) connection_.send_device_arena(pool->arena().id(), pool->device_arena());
    shown_.push_back({.pool = pool});
  }
  const bool elsewhere = on_gpu != std::exchange(on_gpu_, on_gpu);
  const bool other_credits = std::exchange(credits_, credits) != credits;
  if (phase_ == phase && schema_id_ > 0 && !elsewhere && !other_credits) return;
  const pipeline::PhasePtr before = std::exchange(phase_, phase);
  const bool other =
      !before->same_content(*phase) || before->version() != phase->version() || other_credits;
  if (other)
    connection_.send_version({.items = phase->items,
                              .steps_per_epoch = steps_per_epoch,
                              .batch_size = phase->batch,
                              .pipeline_version = phase->version(),
                              .credits = credits,
                              .order_digest = phase->order_text()});
  if (!other && schema_id_ > 0 && !elsewhere) return;
  const std::span<const wire::FieldLayout> fields =
      on_gpu ? stream.device_layout().fields() : phase->run->plan().layout.fields();
  connection_.send_schema(++schema_id_, phase->version(), fields);
}

void Leases::keep(const Pools& pools) {
  std::erase_if(shown_, [&](const Shown& known) {
    if (std::find(pools.begin(), pools.end(), known.pool) != pools.end()) return false;
    connection_.send_arena_retire(known.pool->arena().id());
    if (!known.lent) unseen_.push_back({.pool = known.pool, .until = batches_});
    return true;
  });
}

void Leases::add(Lease lease, std::uint64_t rows) {
  for (Shown& known : shown_) known.lent = known.lent || known.pool == lease.pool;
  lease.number = ++batches_;
  rows_ += rows;
  leases_.push_back(std::move(lease));
}

std::optional<Leases::Lease> Leases::take(std::uint64_t id) {
  const auto lease = std::find_if(leases_.begin(), leases_.end(),
                                  [id](const Lease& known) { return known.id == id; });
  if (lease == leases_.end()) {
    ++bad_releases_;
    return std::nullopt;
  }
  std::optional<Lease> taken = std::move(*lease);
  leases_.erase(lease);
  std::erase_if(unseen_, [&](const Unseen& shown) { return shown.until < taken->number; });
  return taken;
}

void Leases::clear() {
  shown_.clear();
  unseen_.clear();
  leases_.clear();
}

Leases::Pools Leases::pools() const {
  Pools pools;
  for (const Shown& known : shown_) pools.push_back(known.pool);
  for (const Lease& lease : leases_) {
    if (std::find(pools.begin(), pools.end(), lease.pool) == pools.end())
      pools.push_back(lease.pool);
  }
  return pools;
}

job::Turn Leases::released(job::Turn turn, std::uint32_t seek) const {
  for (const Lease& lease : leases_) {
    if (lease.seek == seek) turn = std::min(turn, lease.turn);
  }
  return turn;
}

}  // namespace spdld::session
