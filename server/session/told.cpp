// SPDX-License-Identifier: Apache-2.0
#include "session/told.h"

#include <algorithm>
#include <span>
#include <utility>

namespace spdld::session {

void Told::show(const std::shared_ptr<stream::SlotPool>& pool) {
  const auto same = [&](const Shown& known) { return known.pool == pool; };
  if (std::any_of(shown_.begin(), shown_.end(), same)) return;
  connection_.send_arena_open(pool->arena());
  if (pool->gpu() != nullptr)
    connection_.send_device_arena(pool->arena().id(), pool->device_arena());
  shown_.push_back({.pool = pool});
}

void Told::show(const stream::Stream& stream, const std::shared_ptr<stream::SlotPool>& pool,
                const pipeline::PhasePtr& phase, std::uint64_t steps_per_epoch) {
  show(pool);
  const bool on_gpu = pool->gpu() != nullptr;
  const bool elsewhere = on_gpu != std::exchange(on_gpu_, on_gpu);
  if (phase_ == phase && schema_id_ > 0 && !elsewhere) return;
  const pipeline::PhasePtr before = std::exchange(phase_, phase);
  const bool other = !before->same_content(*phase) || before->version() != phase->version();
  if (other)
    connection_.send_version({.items = phase->items,
                              .steps_per_epoch = steps_per_epoch,
                              .batch_size = phase->batch,
                              .pipeline_version = phase->version(),
                              .order_digest = phase->order_text()});
  if (!other && schema_id_ > 0 && !elsewhere) return;
  const std::span<const wire::FieldLayout> fields =
      on_gpu ? stream.device_layout().fields() : phase->run->plan().layout.fields();
  connection_.send_schema(++schema_id_, phase->version(), fields);
}

void Told::lend(const std::shared_ptr<stream::SlotPool>& pool) {
  for (Shown& known : shown_) known.lent = known.lent || known.pool == pool;
}

void Told::given_back(std::uint64_t number) {
  std::erase_if(unseen_, [number](const Unseen& shown) { return shown.until < number; });
}

void Told::keep(const std::vector<std::shared_ptr<stream::SlotPool>>& pools, std::uint64_t sent) {
  std::erase_if(shown_, [&](const Shown& known) {
    if (std::find(pools.begin(), pools.end(), known.pool) != pools.end()) return false;
    connection_.send_arena_retire(known.pool->arena().id());
    if (!known.lent) unseen_.push_back({.pool = known.pool, .until = sent});
    return true;
  });
}

std::vector<std::shared_ptr<stream::SlotPool>> Told::pools() const {
  std::vector<std::shared_ptr<stream::SlotPool>> pools;
  for (const Shown& known : shown_) pools.push_back(known.pool);
  return pools;
}

void Told::clear() {
  shown_.clear();
  unseen_.clear();
}

}  // namespace spdld::session
