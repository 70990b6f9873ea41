// SPDX-License-Identifier: Apache-2.0
#include "store/ended_json.h"

#include <nlohmann/json.hpp>

#include "store/json_text.h"

namespace spdld::store {
namespace {

using nlohmann::json;

json json_of(const JpegImages& images) {
  return {{"indexed", images.indexed},
          {"from_begin", images.from_begin},
          {"by_libjpeg", images.by_libjpeg},
          {"by_coefficients", images.by_coefficients},
          {"recoded", images.recoded}};
}

JpegImages images_of(const json& value) {
  return {.indexed = value.at("indexed"),
          .from_begin = value.at("from_begin"),
          .by_libjpeg = value.at("by_libjpeg"),
          .by_coefficients = value.at("by_coefficients"),
          .recoded = value.at("recoded")};
}

json json_of(const job::StageView& stage) {
  json value{{"stage", stage.stage},   {"tasks", stage.tasks},   {"failures", stage.failures},
             {"busy_s", stage.busy_s}, {"wait_s", stage.wait_s}, {"concurrency", stage.concurrency},
             {"p50_us", stage.p50_us}, {"p99_us", stage.p99_us}};
  if (stage.jpeg.any()) value["jpeg"] = json_of(stage.jpeg);
  return value;
}

job::StageView stage_of(const json& value) {
  job::StageView stage;
  value.at("stage").get_to(stage.stage);
  value.at("tasks").get_to(stage.tasks);
  value.at("failures").get_to(stage.failures);
  value.at("busy_s").get_to(stage.busy_s);
  value.at("wait_s").get_to(stage.wait_s);
  value.at("concurrency").get_to(stage.concurrency);
  value.at("p50_us").get_to(stage.p50_us);
  value.at("p99_us").get_to(stage.p99_us);
  if (const auto jpeg = value.find("jpeg"); jpeg != value.end()) stage.jpeg = images_of(*jpeg);
  return stage;
}

StoredEnd end_of(const json& value) {
  StoredEnd end;
  job::JobView& view = end.view;
  end.end = {.unix_ms = value.at("unix_ms").get<std::uint64_t>(),
             .how = value.at("how").get<std::string>(),
             .at = step_of(value.at("at"))};
  value.at("version").get_to(view.pipeline_version);
  value.at("num_shards").get_to(view.num_shards);
  value.at("replicas").get_to(view.replicas);
  value.at("seed").get_to(view.seed);
  value.at("batch_size").get_to(view.batch_size);
  value.at("max_epochs").get_to(view.max_epochs);
  value.at("steps_per_epoch").get_to(view.steps_per_epoch);
  value.at("items").get_to(view.items);
  value.at("replaced").get_to(view.replaced);
  value.at("replace_budget").get_to(view.replace_budget);
  value.at("cpu_s").get_to(view.cpu_s);
  value.at("shared_rows").get_to(view.shared_rows);
  value.at("cache_hits").get_to(view.cache_hits);
  value.at("saved_cpu_s").get_to(view.saved_cpu_s);
  value.at("rows").get_to(view.rows);
  view.ledger.at = step_of(value.at("ledger_at"));
  value.at("ledger_position").get_to(view.ledger.position);
  value.at("ledger_kept_unix_ms").get_to(view.ledger.kept_unix_ms);
  for (const json& stage : value.at("stages")) end.stages.push_back(stage_of(stage));
  return end;
}

engine::FailureFacts facts_of(const json& value) {
  engine::FailureFacts facts;
  value.at("unix_ms").get_to(facts.unix_ms);
  value.at("code").get_to(facts.code);
  value.at("message").get_to(facts.message);
  value.at("ended_stream").get_to(facts.ended_stream);
  if (!value.contains("item")) return facts;
  engine::FailedSample& sample = facts.sample.emplace();
  value.at("epoch").get_to(sample.epoch);
  value.at("position").get_to(sample.position);
  value.at("item").get_to(sample.item);
  value.at("uri").get_to(sample.uri);
  if (value.contains("replaced_by")) sample.replaced_by = value["replaced_by"].get<std::uint64_t>();
  return facts;
}

}  // namespace

std::string end_text(const StoredEnd& end) {
  const job::JobView& view = end.view;
  json value{{"unix_ms", end.end.unix_ms},
             {"how", end.end.how},
             {"at", step_json(end.end.at)},
             {"version", view.pipeline_version},
             {"num_shards", view.num_shards},
             {"replicas", view.replicas},
             {"seed", view.seed},
             {"batch_size", view.batch_size},
             {"max_epochs", view.max_epochs},
             {"steps_per_epoch", view.steps_per_epoch},
             {"items", view.items},
             {"replaced", view.replaced},
             {"replace_budget", view.replace_budget},
             {"cpu_s", view.cpu_s},
             {"shared_rows", view.shared_rows},
             {"cache_hits", view.cache_hits},
             {"saved_cpu_s", view.saved_cpu_s},
             {"rows", view.rows},
             {"ledger_at", step_json(view.ledger.at)},
             {"ledger_position", view.ledger.position},
             {"ledger_kept_unix_ms", view.ledger.kept_unix_ms},
             {"stages", json::array()}};
  for (const job::StageView& stage : end.stages) value["stages"].push_back(json_of(stage));
  return shown_text(value);
}

Result<StoredEnd> parse_end(const std::string& text) { return parsed(text, end_of); }

std::string failure_text(const engine::FailureFacts& facts) {
  json value{{"unix_ms", facts.unix_ms},
             {"code", facts.code},
             {"message", facts.message},
             {"ended_stream", facts.ended_stream}};
  if (facts.sample) {
    value["epoch"] = facts.sample->epoch;
    value["position"] = facts.sample->position;
    value["item"] = facts.sample->item;
    value["uri"] = facts.sample->uri;
    if (facts.sample->replaced_by) value["replaced_by"] = *facts.sample->replaced_by;
  }
  return shown_text(value);
}

Result<engine::FailureFacts> parse_failure(const std::string& text) {
  return parsed(text, facts_of);
}

}  // namespace spdld::store
