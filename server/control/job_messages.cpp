// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "base/text/utf8.h"

namespace spdld::control {
namespace {

Status check_weight(const std::string& job, double weight) {
  if (std::isfinite(weight) && weight > 0) return Status();
  return Status(Code::kInvalidArgument,
                fmt::format("job '{}': weight is {}; it must be a number above 0 (a job has 1 "
                            "unless told otherwise)",
                            job, weight));
}

}  // namespace

Result<session::JobRequest> job_request(const v1::CreateJobRequest& message) {
  if (message.job().empty()) return error(Code::kInvalidArgument, "a job needs a name");
  if (message.pipeline().empty()) {
    return error(Code::kInvalidArgument,
                 fmt::format("job '{}' needs a pipeline to run", message.job()));
  }
  if (message.num_shards() == 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("job '{}': num_shards must be at least 1", message.job()));
  }
  session::JobRequest request;
  request.job = message.job();
  request.pipeline = message.pipeline();
  request.num_shards = message.num_shards();
  request.replicas = message.replicas() == 0 ? 1 : message.replicas();
  if (message.has_seed()) request.seed = message.seed();
  if (message.has_batch_size()) request.batch_size = message.batch_size();
  request.vars.insert(message.vars().begin(), message.vars().end());
  switch (message.epochs()) {
    case v1::EPOCH_MODE_UNSPECIFIED:
    case v1::EPOCH_MODE_AUTO: request.epochs = job::EpochMode::kAuto; break;
    case v1::EPOCH_MODE_MANUAL: request.epochs = job::EpochMode::kManual; break;
    default:
      return error(Code::kInvalidArgument, fmt::format("job '{}': epochs is {}, which no mode has",
                                                       message.job(), message.epochs()));
  }
  request.max_epochs = message.max_epochs();
  const v1::Limits& limits = message.limits();
  if (limits.weight() != 0) {
    SPDLD_TRY(check_weight(message.job(), limits.weight()));
    request.limits.weight = limits.weight();
  }
  // No limit can be said by 0, too, as it is when limits change.
  if (limits.cpus() != 0) request.limits.cpus = limits.cpus();
  if (limits.arena_bytes() != 0) request.limits.bytes = limits.arena_bytes();
  return request;
}

void fill(v1::LiveValue* message, const session::LiveValue& value) {
  message->set_key(value.key);
  message->set_now(value.now);
  message->set_configured(value.configured);
  message->set_range(value.range);
  message->set_means(value.means);
}

void fill(v1::StepAt* message, const job::StepAt& at) {
  message->set_epoch(at.epoch);
  message->set_step(at.step);
}

void fill(v1::ShownStep* message, const session::StepView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  message->set_version(view.version);
  fill(message->mutable_at(), view.at);
  message->set_shard(view.shard);
  message->set_num_shards(view.num_shards);
  if (view.turn) message->set_turn(*view.turn);
  message->set_sent(view.sent);
}

void fill(v1::Headspace* message, const session::HeadspaceView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  message->set_ranks(view.ranks);
  message->set_prefetch(view.prefetch);
  message->set_steps_now(view.steps_now);
  message->set_steps_ready(view.steps_ready);
  message->set_rounds(view.rounds);
  message->set_longest_hold_s(view.longest_hold_s);
  message->set_steps_per_epoch(view.steps_per_epoch);
  if (view.now_s) message->set_now_s(*view.now_s);
  if (view.ready_s) message->set_ready_s(*view.ready_s);
  if (const auto gain = view.gain()) {
    message->set_gain(*gain);
    message->set_saved_epoch_s(*gain * *view.now_s * static_cast<double>(view.steps_per_epoch));
  }
  message->set_ended_by(utf8(view.ended_by));
  message->set_warning(utf8(view.warning));
}

void fill(v1::Diagnosis* message, const session::DiagnosisView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  if (view.waited_share) message->set_waited_share(*view.waited_share);
  message->set_faster(view.faster);
  message->set_ranks(view.ranks);
  for (const session::Finding& of : view.findings) {
    v1::Finding& finding = *message->add_findings();
    finding.set_cause(of.cause);
    finding.set_says(utf8(of.says));
    finding.set_command(utf8(of.command));
    finding.set_brings(of.brings);
    for (const session::Evidence& figure : of.evidence) {
      v1::Evidence& evidence = *finding.add_evidence();
      evidence.set_name(figure.name);
      evidence.set_value(figure.value);
      evidence.set_unit(figure.unit);
    }
  }
}

void fill(v1::Job* message, const job::JobView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  message->set_owner(view.owner);
  message->set_pipeline_version(view.pipeline_version);
  message->set_declared(view.declared);
  message->set_num_shards(view.num_shards);
  fill(message->mutable_dealt_from(), view.dealt_from);
  message->set_replicas(view.replicas);
  message->set_seed(view.seed);
  message->set_batch_size(view.batch_size);
  message->set_epochs(view.epochs == job::EpochMode::kManual ? v1::EPOCH_MODE_MANUAL
                                                             : v1::EPOCH_MODE_AUTO);
  message->set_open_epochs(view.open_epochs);
  message->set_max_epochs(view.max_epochs);
  message->set_steps_per_epoch(view.steps_per_epoch);
  message->set_items(view.items);
  message->set_replaced(view.replaced);
  message->set_replace_budget(view.replace_budget);
  for (const job::ShardView& shard : view.shards) {
    v1::Shard* out = message->add_shards();
    out->set_shard(shard.shard);
    out->set_session(shard.session);
    out->set_pid(shard.pid);
    out->set_epoch(shard.epoch);
    out->set_step(shard.step);
    out->set_replica(shard.replica);
  }
  v1::Limits* limits = message->mutable_limits();
  limits->set_weight(view.limits.weight);
  if (view.limits.cpus) limits->set_cpus(*view.limits.cpus);
  if (view.limits.bytes) limits->set_arena_bytes(*view.limits.bytes);
  message->set_arena_bytes(view.arena_bytes);
  message->set_cpu_s(view.cpu_s);
  message->set_shared_rows(view.shared_rows);
  message->set_cache_hits(view.cache_hits);
  message->set_saved_cpu_s(view.saved_cpu_s);
  message->set_rows(view.rows);
  if (view.rows_per_s) message->set_rows_per_s(*view.rows_per_s);
  for (const job::PhaseView& phase : view.phases) {
    v1::Phase* out = message->add_phases();
    fill(out->mutable_from(), phase.from);
    out->set_pipeline_version(phase.pipeline_version);
    out->set_batch_size(phase.batch_size);
    for (const auto& [name, value] : phase.vars) (*out->mutable_vars())[utf8(name)] = utf8(value);
  }
  v1::Ledger* ledger = message->mutable_ledger();
  fill(ledger->mutable_at(), view.ledger.at);
  ledger->set_position(view.ledger.position);
  ledger->set_kept_unix_ms(view.ledger.kept_unix_ms);
  ledger->set_conflict(utf8(view.ledger.conflict));
  for (const job::SeekView& seek : view.seeks) {
    v1::Seek* out = message->add_seeks();
    fill(out->mutable_from(), seek.from);
    fill(out->mutable_to(), seek.to);
  }
  if (!view.end) return;
  v1::JobEnd* end = message->mutable_end();
  end->set_unix_ms(view.end->unix_ms);
  end->set_how(utf8(view.end->how));
  fill(end->mutable_at(), view.end->at);
}

}  // namespace spdld::control
