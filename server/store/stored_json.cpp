// SPDX-License-Identifier: Apache-2.0
#include "store/stored_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "store/described_json.h"
#include "store/json_text.h"

namespace spdld::store {

using nlohmann::json;

void describe(auto& f, Of<job::StepAt> auto& at) { f.array(at.epoch, at.step); }

void describe(auto& f, Of<job::Member> auto& member) { f.array(member.shard, member.replica); }

void describe(auto& f, Of<Size> auto& size) { f.array(size.width, size.height); }

// Enums are kept by name, so that a record with an unknown name is refused.
void describe(auto& f, Of<Tail> auto& tail) {
  f.name(tail, {{"drop", Tail::kDrop}, {"pad", Tail::kPad}, {"keep", Tail::kKeep}});
}

void describe(auto& f, Of<job::MemberRecord::Presence> auto& presence) {
  using Presence = job::MemberRecord::Presence;
  f.name(presence, {{"here", Presence::kHere},
                    {"expected", Presence::kExpected},
                    {"away", Presence::kAway},
                    {"done", Presence::kDone}});
}

template <typename F>
void describe(F& f, Of<Credentials> auto& user) {
  f("uid", user.uid, "gid", user.gid, "groups", user.groups);
  if constexpr (F::kReads) std::sort(user.groups.begin(), user.groups.end());
}

void describe(auto& f, Of<job::ApplyRequest> auto& request) {
  f("yaml", request.yaml, "file", request.file, "vars", request.vars, "env", request.env);
  f.optional("dataset", request.dataset, "bucket_run", request.bucket_run);
  f.optional("image_sizes", request.image_sizes, "from_loader", request.from_loader);
  f.optional("reader", request.reader);
}

void describe(auto& f, Of<StoredPhase> auto& phase) {
  f("version", phase.version, "owner", phase.owner, "request", phase.request);
  f("reader", phase.reader);
  f.optional("batch_size", phase.batch_size, "overrides", phase.overrides);
}

void describe(auto& f, Of<job::JobLimits> auto& limits) {
  f("weight", limits.weight);
  f.optional("cpus", limits.cpus, "bytes", limits.bytes, "prefetch", limits.prefetch);
  f.optional("fetching", limits.fetching, "processing", limits.processing);
}

void describe(auto& f, Of<job::VersionFacts> auto& facts) {
  f("items", facts.items, "tail", facts.tail, "batch", facts.batch, "order", facts.order);
  f.optional("group", facts.group);
}

template <typename F>
void describe(F& f, Of<job::State> auto& state) {
  job::StepAt at = state.at();
  f("at", at);
  if constexpr (F::kReads) std::tie(state.epoch, state.step) = std::tie(at.epoch, at.step);
  f("position", state.position, "shards", state.shards, "version", state.version);
  f("next_version", state.next_version);
}

void describe(auto& f, Of<job::OwnSeek> auto& seek) {
  f("turn", seek.turn, "to", seek.to, "position", seek.position, "version", seek.version);
  f("skip", seek.skip);
}

void describe(auto& f, Of<job::Edit::Skip> auto& skip) {
  f("epoch", skip.epoch, "steps", skip.steps);
}

void describe(auto& f, Of<job::Edit> auto& edit) {
  using Edit = job::Edit;
  f("turn", edit.turn);
  if (auto* const seek = f.template alternative<Edit::Seek>(edit.change, "seek")) {
    f("seek", seek->to);
  } else if (auto* const skip = f.template alternative<Edit::Skip>(edit.change, "skip")) {
    f("skip", *skip);
  } else if (auto* const resize = f.template alternative<Edit::Resize>(edit.change, "shards")) {
    f("shards", resize->shards);
    f.optional("entry", resize->entry);
  } else if (auto* const swap = f.template alternative<Edit::Swap>(edit.change, "turn")) {
    // The last alternative, so that an edit without any of these names is refused.
    f("version", swap->version);
  }
}

void describe(auto& f, Of<job::PlannedSwap> auto& planned) {
  f("from", planned.from, "version", planned.version);
  f.optional("place", planned.place);
}

void describe(auto& f, Of<job::Parting> auto& parting) {
  f("branch", parting.branch, "turn", parting.turn);
}

void describe(auto& f, Of<job::ScheduleRecord> auto& record) {
  f("run", record.run, "versions", record.versions, "versions_made", record.versions_made);
  f("earlier", record.earlier, "base", record.base, "base_turn", record.base_turn);
  f("oldest", record.oldest, "edits", record.edits, "partings", record.partings);
  f.optional("planned", record.planned);
}

void describe(auto& f, Of<job::MemberRecord> auto& of) {
  f("shard", of.member.shard, "replica", of.member.replica, "is", of.presence);
  f("sent", of.progress.sent, "next", of.progress.next, "released", of.progress.released);
  f("at", of.progress.at, "position", of.progress.position, "order", of.progress.order);
}

template <typename F>
void describe(F& f, Of<StoredJob> auto& job) {
  f("ended", job.ended, "incarnation", job.incarnation, "seed", job.seed, "replicas", job.replicas);
  bool manual = job.epochs == job::EpochMode::kManual;
  f("manual", manual);
  if constexpr (F::kReads) job.epochs = manual ? job::EpochMode::kManual : job::EpochMode::kAuto;
  f("open_epochs", job.open_epochs, "max_epochs", job.max_epochs, "limits", job.limits);
  f("first_limits", job.first_limits, "vars", job.vars, "first_vars", job.first_vars);
  f.optional("batch_size", job.batch_size);
  f("start", job.start, "phases", job.phases, "schedule", job.schedule, "members", job.members);
  f("reserved", job.reserved, "reached", job.reached, "done", job.done);
}

void describe(auto& f, Of<JpegImages> auto& images) {
  f("indexed", images.indexed, "from_begin", images.from_begin, "by_libjpeg", images.by_libjpeg);
  f("by_coefficients", images.by_coefficients, "recoded", images.recoded);
}

void describe(auto& f, Of<job::StageView> auto& stage) {
  f("stage", stage.stage, "tasks", stage.tasks, "failures", stage.failures, "busy_s", stage.busy_s);
  f("wait_s", stage.wait_s, "concurrency", stage.concurrency, "p50_us", stage.p50_us);
  f("p99_us", stage.p99_us);
  f.optional("jpeg", stage.jpeg);
}

void describe(auto& f, Of<StoredEnd> auto& end) {
  f("unix_ms", end.end.unix_ms, "how", end.end.how, "at", end.end.at);
  f("version", end.view.pipeline_version, "num_shards", end.view.num_shards);
  f("replicas", end.view.replicas, "seed", end.view.seed, "batch_size", end.view.batch_size);
  f("max_epochs", end.view.max_epochs, "steps_per_epoch", end.view.steps_per_epoch);
  f("items", end.view.items, "replaced", end.view.replaced);
  f("replace_budget", end.view.replace_budget, "cpu_s", end.view.cpu_s);
  f("shared_rows", end.view.shared_rows, "cache_hits", end.view.cache_hits);
  f("saved_cpu_s", end.view.saved_cpu_s, "rows", end.view.rows, "ledger_at", end.view.ledger.at);
  f("ledger_position", end.view.ledger.position);
  f("ledger_kept_unix_ms", end.view.ledger.kept_unix_ms, "stages", end.stages);
}

void describe(auto& f, Of<engine::FailureFacts> auto& facts) {
  f("unix_ms", facts.unix_ms, "code", facts.code, "message", facts.message);
  f("ended_stream", facts.ended_stream);
  if (auto* const sample = f.present(facts.sample, "item")) {
    f("epoch", sample->epoch, "position", sample->position, "item", sample->item);
    f("uri", sample->uri);
    f.optional("replaced_by", sample->replaced_by);
  }
}

namespace {

template <typename T>
Result<std::string> exact_text(const T& value, const std::string& name) {
  try {
    return described(value).dump();
  } catch (const json::exception&) {
    return error(Code::kInvalidArgument, name +
                                             " cannot be kept: its name, text or one of its "
                                             "variables is not UTF-8; write it in UTF-8");
  }
}

template <typename T>
Result<T> parsed(const std::string& text) {
  try {
    T value;
    read_described(json::parse(text), value);
    return value;
  } catch (const json::exception& broken) {
    return error(Code::kDataLoss, broken.what());
  }
}

}  // namespace

Result<std::string> request_text(const std::string& pipeline, const job::ApplyRequest& request) {
  return exact_text(request, "pipeline '" + pipeline + "'");
}

Result<job::ApplyRequest> parse_request(const std::string& text) {
  return parsed<job::ApplyRequest>(text);
}

Result<std::string> job_text(const StoredJob& job) {
  return exact_text(job, "job '" + job.key.job + "'");
}

Result<StoredJob> parse_job(const std::string& text) {
  SPDLD_ASSIGN(StoredJob job, parsed<StoredJob>(text));
  if (job.phases.empty()) return error(Code::kDataLoss, "it runs nothing");
  for (const auto& [version, facts] : job.schedule.versions) {
    if (!job.phases.contains(version))
      return error(Code::kDataLoss,
                   "nothing is known of what its version " + std::to_string(version) + " runs");
  }
  return job;
}

std::string end_text(const StoredEnd& end) { return shown_text(described(end)); }

Result<StoredEnd> parse_end(const std::string& text) { return parsed<StoredEnd>(text); }

std::string failure_text(const engine::FailureFacts& facts) { return shown_text(described(facts)); }

Result<engine::FailureFacts> parse_failure(const std::string& text) {
  return parsed<engine::FailureFacts>(text);
}

}  // namespace spdld::store
