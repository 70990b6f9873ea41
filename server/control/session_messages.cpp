// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include "base/text/utf8.h"

namespace spdld::control {

namespace {

void fill_in(v1::Shortages* message, const session::ShortagesView& view) {
  using stream::Shortage;
  message->set_attached_s(view.attached_s);
  message->set_bytes_s(view.of(Shortage::kBytes));
  message->set_worker_s(view.of(Shortage::kWorker));
  message->set_memory_s(view.of(Shortage::kMemory));
  message->set_calls_s(view.of(Shortage::kCalls));
  message->set_making_s(view.of(Shortage::kMaking));
  message->set_slot_s(view.of(Shortage::kSlot));
  message->set_replica_s(view.of(Shortage::kReplica));
  message->set_job_s(view.of(Shortage::kJob));
  message->set_copy_s(view.of(Shortage::kCopy));
  message->set_epoch_s(view.of(Shortage::kEpoch));
  message->set_change_s(view.of(Shortage::kChange));
  message->set_disk_s(view.of(Shortage::kDisk));
}

}  // namespace

void fill(v1::Session* message, const session::SessionView& view) {
  message->set_id(view.id);
  message->set_uid(view.uid);
  message->set_pid(view.pid);
  message->set_client(utf8(view.client));
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  message->set_shard(view.shard);
  message->set_num_shards(view.num_shards);
  message->set_epoch(view.epoch);
  message->set_step(view.step);
  message->set_credits(view.credits);
  message->set_leases(view.leases);
  message->set_ready(view.ready);
  if (view.lately) {
    message->set_rows_per_s(view.lately->rows_per_s);
    message->set_waited_share(view.lately->waited_share);
    if (view.lately->ready_share) message->set_ready_share(*view.lately->ready_share);
    if (view.lately->core_waited_share)
      message->set_core_waited_share(*view.lately->core_waited_share);
    message->set_between_share(view.lately->between_share);
    message->set_map_share(view.lately->map_share);
    fill_in(message->mutable_shortages_lately(), view.lately->shortages);
  }
  fill_in(message->mutable_shortages(), view.shortages);
  message->set_batches(view.batches);
  message->set_arena_bytes(view.arena_bytes);
  message->set_gpu(view.gpu);
  message->set_replica(view.replica);
  message->set_pipeline_version(view.pipeline_version);
  message->set_host(utf8(view.host));
  message->set_host_pid(view.host_pid);
  message->set_command(utf8(view.command));
  message->set_waited_s(view.waited_s);
  message->set_waits(view.waits);
  message->mutable_waits_by_length()->Add(view.waits_by_length.begin(), view.waits_by_length.end());
  message->set_steps(view.steps);
  message->set_between_s(view.between_s);
  message->set_map_s(view.map_s);
}

void fill(v1::Stage* message, const job::StageView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  message->set_stage(utf8(view.stage));
  message->set_tasks(view.tasks);
  message->set_failures(view.failures);
  message->set_busy_s(view.busy_s);
  message->set_wait_s(view.wait_s);
  message->set_in_flight(view.in_flight);
  message->set_concurrency(view.concurrency);
  message->set_p50_us(view.p50_us);
  message->set_p99_us(view.p99_us);
  if (view.rows_per_s) message->set_rows_per_s(*view.rows_per_s);
  if (view.served) message->set_served(*view.served);
  if (view.failures_per_s) message->set_failures_per_s(*view.failures_per_s);
  if (view.waiting) message->set_waiting(*view.waiting);
  if (view.p50_lately_us) message->set_p50_lately_us(*view.p50_lately_us);
  if (view.p90_lately_us) message->set_p90_lately_us(*view.p90_lately_us);
  if (view.p99_lately_us) message->set_p99_lately_us(*view.p99_lately_us);
  if (view.busy_share) message->set_busy_share(*view.busy_share);
  if (view.jpeg.any()) fill(message->mutable_jpeg(), view.jpeg);
  for (const auto& [code, failures] : view.failures_by_code)
    (*message->mutable_failures_by_code())[code] = failures;
  if (view.bytes) message->set_bytes(*view.bytes);
  if (view.bytes_per_s) message->set_bytes_per_s(*view.bytes_per_s);
  if (view.rejected) message->set_rejected(*view.rejected);
  for (const OpTime& of : view.ops) {
    v1::OpTime* const op = message->add_ops();
    op->set_field(utf8(of.field));
    op->set_ops(utf8(of.ops));
    op->set_rows(of.rows);
    op->set_spent_s(of.spent_s);
  }
}

void fill(v1::Failure* message, const session::FailureView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  const engine::FailureFacts& facts = view.facts;
  message->set_unix_ms(facts.unix_ms);
  message->set_code(facts.code);
  message->set_message(utf8(facts.message));
  message->set_ended_stream(facts.ended_stream);
  if (!facts.sample) return;
  message->set_epoch(facts.sample->epoch);
  message->set_position(facts.sample->position);
  message->set_item(facts.sample->item);
  message->set_uri(utf8(facts.sample->uri));
  if (facts.sample->replaced_by) message->set_replaced_by(*facts.sample->replaced_by);
}

}  // namespace spdld::control
