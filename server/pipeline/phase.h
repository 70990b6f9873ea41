// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "engine/cache/sample_cache.h"
#include "engine/run.h"
#include "op/order_spec.h"
#include "pipeline/pipeline_version.h"
#include "source/order/sharding.h"

namespace spdld::pipeline {

// What a job runs from one of its steps on: a version of its pipeline, in the job's variables and
// with its seed. Immutable but for the run's limits; shared by the job's plan and its streams.
struct Phase {
  std::uint64_t items = 0;
  Repeat repeat = {};
  Tail tail = Tail::kDrop;
  std::uint64_t batch = 0;  // rows a shard
  // Two phases of the same content make the same bytes at the same place.
  std::string content;
  std::uint64_t seed = 0;
  // Batches that a consumer may hold or have waiting, whatever it asks for; 0: what it asks for, or
  // else what the pipeline says.
  std::uint32_t prefetch = 0;
  PipelinePtr pipeline;
  // Its run makes no rows, as its pipeline was closed when it was made.
  bool closed = false;
  // Variables that an operator gave for this job: its own values of them do not count meanwhile.
  std::set<std::string> overrides;
  std::shared_ptr<engine::Run> run;
  // Of the run's cache, until the job ends; null: it has none.
  std::shared_ptr<engine::SampleCache::Use> cache_use;

  bool same_content(const Phase& other) const {
    return seed == other.seed && content == other.content;
  }
  // The same batches, in as many slots.
  bool may_share(const Phase& other) const {
    return same_content(other) && prefetch == other.prefetch;
  }
  bool same_order(const Phase& other) const { return order_text() == other.order_text(); }
  // Of an epoch, and how they are dealt to so many shards.
  std::uint64_t rows() const { return items * repeat.rows; }
  source::Sharding sharding(std::uint32_t shards) const {
    return {rows(), tail, {.num_shards = shards, .batch = batch}, repeat.group()};
  }
  // What identifies the order to a cursor, and lets its error say how many items there were.
  std::string order_text() const;
  std::uint32_t version() const { return pipeline == nullptr ? 0 : pipeline->version; }
  // With whose rights its run reads.
  Credentials reader() const { return pipeline == nullptr ? Credentials() : pipeline->reader; }
};
using PhasePtr = std::shared_ptr<const Phase>;

}  // namespace spdld::pipeline
