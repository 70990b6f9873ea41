// SPDX-License-Identifier: Apache-2.0
#include "session/job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"

namespace spdld::session {
namespace {

std::uint64_t replace_budget(const PipelineVersion& pipeline) {
  const auto& policy = pipeline.plan->spec.on_error;
  const double share = policy.budget_fraction * static_cast<double>(pipeline.source->size());
  return std::max(static_cast<std::uint64_t>(policy.budget_min),
                  static_cast<std::uint64_t>(std::llround(share)));
}

}  // namespace

Job::Job(JobKey job_key, PipelinePtr runs, std::shared_ptr<engine::Run> job_run,
         std::uint64_t job_seed, std::uint32_t num_shards, std::set<std::uint64_t> replaced,
         Store* store)
    : key(std::move(job_key)),
      pipeline(std::move(runs)),
      run(std::move(job_run)),
      seed(job_seed),
      failures(replace_budget(*pipeline), std::move(replaced)),
      timeline(pipeline->source->size(), pipeline->plan->spec.batch.last, batch_size(), num_shards),
      store_(store) {}

Status Job::may_replace(const engine::SampleFailure& failure) {
  bool is_new = false;
  SPDLD_TRY(failures.admit(failure, is_new));
  if (!is_new) return {};
  spdlog::warn("job {}, pipeline {}: {} cannot be used and is replaced: {}", key.job, key.pipeline,
               failure.uri, failure.status.message());
  if (store_ == nullptr) return {};
  // A record that cannot be kept makes the budget forgetful, not the batch wrong.
  if (Status kept = store_->add_replaced(key, failure.item); !kept.ok())
    spdlog::warn("{}; a restart will forget that item {} was replaced", kept.message(),
                 failure.item);
  return {};
}

void Job::stream_failed(const Status& status) {
  spdlog::error("job {}, pipeline {}: {}", key.job, key.pipeline, status.message());
}

JobView Job::view() const {
  JobView view{.job = key.job,
               .pipeline = key.pipeline,
               .owner = key.uid,
               .pipeline_version = pipeline->version,
               .declared = declared,
               .num_shards = timeline.num_shards(),
               .replicas = 1,
               .seed = seed,
               .batch_size = batch_size(),
               .epochs = epochs,
               .open_epochs = open_epochs == kNoEnd ? 0 : open_epochs,
               .max_epochs = max_epochs,
               .steps_per_epoch = timeline.steps_per_epoch(),
               .items = pipeline->source->size(),
               .replaced = failures.replaced(),
               .replace_budget = failures.budget(),
               .shards = {}};
  for (std::uint32_t shard = 0; shard < timeline.num_shards(); ++shard) {
    ShardView& of = view.shards.emplace_back();
    of.shard = shard;
    const auto held = shards.find(shard);
    if (held == shards.end()) continue;
    of.session = held->second->id;
    of.pid = held->second->connection->peer().pid;
    if (held->second->feed == nullptr) continue;
    const StepAt next = held->second->feed->view().next;
    of.epoch = next.epoch;
    of.step = next.step;
  }
  return view;
}

StoredJob Job::stored() const {
  StoredJob job;
  job.key = key;
  job.request = {.job = key.job,
                 .pipeline = key.pipeline,
                 .num_shards = timeline.first_num_shards(),
                 .replicas = 1,
                 .seed = seed,
                 .batch_size = batch_size(),
                 .vars = vars,
                 .epochs = epochs,
                 .max_epochs = max_epochs};
  job.seed = seed;
  job.open_epochs = open_epochs;
  job.start = start;
  job.cuts = timeline.cuts();
  return job;
}

}  // namespace spdld::session
