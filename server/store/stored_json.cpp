// SPDX-License-Identifier: Apache-2.0
#include "store/stored_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "store/json_text.h"

namespace spdld::store {
namespace {

using nlohmann::json;

Result<std::string> text_of(const json& value, const std::string& what) {
  try {
    return value.dump();
  } catch (const json::exception&) {
    return error(Code::kInvalidArgument, what +
                                             " cannot be kept: its name, text or one of its "
                                             "variables is not UTF-8; write it in UTF-8");
  }
}

json json_of(const Credentials& user) {
  return {{"uid", user.uid}, {"gid", user.gid}, {"groups", user.groups}};
}

Credentials reader_of(const json& value) {
  const json& reader = value.at("reader");
  Credentials user{.uid = reader.at("uid").get<uid_t>(),
                   .gid = reader.at("gid").get<gid_t>(),
                   .groups = reader.at("groups").get<std::vector<gid_t>>()};
  std::sort(user.groups.begin(), user.groups.end());
  return user;
}

json json_of(const job::ApplyRequest& request) {
  json value{
      {"yaml", request.yaml}, {"file", request.file}, {"vars", request.vars}, {"env", request.env}};
  if (!request.dataset.empty()) value["dataset"] = request.dataset;
  if (request.bucket_run) value["bucket_run"] = *request.bucket_run;
  for (const auto& [field, size] : request.image_sizes)
    value["image_sizes"][field] = {size.width, size.height};
  if (request.from_loader) value["from_loader"] = true;
  if (request.reader) value["reader"] = json_of(*request.reader);
  return value;
}

job::ApplyRequest request_of(const json& value) {
  job::ApplyRequest request;
  value.at("yaml").get_to(request.yaml);
  value.at("file").get_to(request.file);
  value.at("vars").get_to(request.vars);
  value.at("env").get_to(request.env);
  request.dataset = value.value("dataset", std::string());
  if (value.contains("bucket_run")) request.bucket_run = value["bucket_run"].get<std::uint64_t>();
  if (value.contains("image_sizes")) {
    for (const auto& [field, size] : value["image_sizes"].items())
      request.image_sizes[field] = {size.at(0).get<int>(), size.at(1).get<int>()};
  }
  request.from_loader = value.value("from_loader", false);
  if (value.contains("reader")) request.reader = reader_of(value);
  return request;
}

json json_of(const StoredPhase& phase) {
  json value{{"version", phase.version},
             {"owner", phase.owner},
             {"request", json_of(phase.request)},
             {"reader", json_of(phase.reader)}};
  if (phase.batch_size) value["batch_size"] = *phase.batch_size;
  if (!phase.overrides.empty()) value["overrides"] = phase.overrides;
  return value;
}

StoredPhase phase_of(const json& value) {
  StoredPhase phase;
  value.at("version").get_to(phase.version);
  value.at("owner").get_to(phase.owner);
  phase.request = request_of(value.at("request"));
  if (value.contains("batch_size")) phase.batch_size = value["batch_size"].get<std::uint64_t>();
  phase.overrides = value.value("overrides", std::set<std::string>());
  phase.reader = reader_of(value);
  return phase;
}

json json_of(const job::JobLimits& limits) {
  json value{{"weight", limits.weight}};
  if (limits.cpus) value["cpus"] = *limits.cpus;
  if (limits.bytes) value["bytes"] = *limits.bytes;
  return value;
}

job::JobLimits limits_of(const json& value) {
  job::JobLimits limits;
  value.at("weight").get_to(limits.weight);
  if (value.contains("cpus")) limits.cpus = value["cpus"].get<std::uint32_t>();
  if (value.contains("bytes")) limits.bytes = value["bytes"].get<std::uint64_t>();
  return limits;
}

json json_of(const StoredCut& cut) {
  json value{{"from", step_json(cut.from)},
             {"position", cut.position},
             {"num_shards", cut.num_shards},
             {"left_out", cut.left_out},
             {"phase", cut.phase}};
  if (cut.anew_from > 0) value["anew_from"] = cut.anew_from;
  return value;
}

StoredCut cut_of(const json& value) {
  return {.from = step_of(value.at("from")),
          .position = value.at("position").get<std::uint64_t>(),
          .num_shards = value.at("num_shards").get<std::uint32_t>(),
          .phase = value.at("phase").get<std::uint32_t>(),
          .left_out = value.at("left_out").get<std::uint64_t>(),
          .anew_from = value.value("anew_from", 0U)};
}

template <typename T>
json list_of(const std::vector<T>& values);

std::vector<StoredCut> cuts_of(const json& list) {
  std::vector<StoredCut> cuts;
  for (const json& cut : list) cuts.push_back(cut_of(cut));
  return cuts;
}

json json_of(const StoredMove& move) {
  return {{"number", move.number},
          {"after", move.after},
          {"from", step_json(move.from)},
          {"to", step_json(move.to)},
          {"before", list_of(move.before)}};
}

StoredMove move_of(const json& value) {
  return {.number = value.at("number").get<std::uint32_t>(),
          .after = value.at("after").get<std::uint32_t>(),
          .from = step_of(value.at("from")),
          .to = step_of(value.at("to")),
          .before = cuts_of(value.at("before"))};
}

// An object, so that a record with an unknown name is refused.
const json& presences() {
  using Presence = job::MemberRecord::Presence;
  static const json kKnown{{"here", Presence::kHere},
                           {"expected", Presence::kExpected},
                           {"away", Presence::kAway},
                           {"done", Presence::kDone}};
  return kKnown;
}

json json_of(const job::MemberRecord& of) {
  const json& known = presences();
  return {{"shard", of.member.shard},
          {"replica", of.member.replica},
          {"is", std::find(known.begin(), known.end(), json(of.presence)).key()},
          {"next", step_json(of.next)},
          {"released", step_json(of.released)},
          {"reserved", step_json(of.reserved)}};
}

job::MemberRecord member_record_of(const json& value) {
  return {
      .member = {value.at("shard").get<std::uint32_t>(), value.at("replica").get<std::uint32_t>()},
      .presence =
          presences().at(value.at("is").get<std::string>()).get<job::MemberRecord::Presence>(),
      .next = step_of(value.at("next")),
      .released = step_of(value.at("released")),
      .reserved = step_of(value.at("reserved"))};
}

json json_of(const job::Member& member) { return json::array({member.shard, member.replica}); }

std::vector<job::Member> members_of(const json& list) {
  std::vector<job::Member> members;
  for (const json& member : list)
    members.push_back({member.at(0).get<std::uint32_t>(), member.at(1).get<std::uint32_t>()});
  return members;
}

StoredJob job_of(const json& value) {
  StoredJob job;
  value.at("ended").get_to(job.ended);
  value.at("incarnation").get_to(job.incarnation);
  value.at("seed").get_to(job.seed);
  value.at("replicas").get_to(job.replicas);
  job.epochs = value.at("manual").get<bool>() ? job::EpochMode::kManual : job::EpochMode::kAuto;
  value.at("open_epochs").get_to(job.open_epochs);
  value.at("max_epochs").get_to(job.max_epochs);
  job.limits = limits_of(value.at("limits"));
  value.at("vars").get_to(job.vars);
  value.at("first_vars").get_to(job.first_vars);
  if (value.contains("batch_size")) job.batch_size = value["batch_size"].get<std::uint64_t>();
  job.start = step_of(value.at("start"));
  for (const json& phase : value.at("phases")) job.phases.push_back(phase_of(phase));
  job.cuts = cuts_of(value.at("cuts"));
  for (const json& move : value.at("moves")) job.moves.push_back(move_of(move));
  value.at("move_count").get_to(job.move_count);
  for (const json& of : value.at("members")) job.members.push_back(member_record_of(of));
  job.done = members_of(value.at("done"));
  return job;
}

template <typename T>
json list_of(const std::vector<T>& values) {
  json list = json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}

}  // namespace

Result<std::string> request_text(const std::string& pipeline, const job::ApplyRequest& request) {
  return text_of(json_of(request), "pipeline '" + pipeline + "'");
}

Result<job::ApplyRequest> parse_request(const std::string& text) {
  return parsed(text, request_of);
}

Result<std::string> job_text(const StoredJob& job) {
  json value{{"ended", job.ended},
             {"incarnation", job.incarnation},
             {"seed", job.seed},
             {"replicas", job.replicas},
             {"manual", job.epochs == job::EpochMode::kManual},
             {"open_epochs", job.open_epochs},
             {"max_epochs", job.max_epochs},
             {"limits", json_of(job.limits)},
             {"vars", job.vars},
             {"first_vars", job.first_vars},
             {"start", step_json(job.start)},
             {"phases", list_of(job.phases)},
             {"cuts", list_of(job.cuts)},
             {"moves", list_of(job.moves)},
             {"move_count", job.move_count},
             {"members", list_of(job.members)},
             {"done", list_of(job.done)}};
  if (job.batch_size) value["batch_size"] = *job.batch_size;
  return text_of(value, "job '" + job.key.job + "'");
}

Result<StoredJob> parse_job(const std::string& text) { return parsed(text, job_of); }

}  // namespace spdld::store
