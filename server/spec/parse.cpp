// SPDX-License-Identifier: Apache-2.0
#include "spec/parse.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text/counted.h"
#include "spec/extends.h"
#include "spec/pipeline_shape.h"
#include "spec/read_source.h"
#include "spec/scalar.h"
#include "spec/vars.h"
#include "spec/yaml_node.h"

namespace spdld::spec {
namespace {

using Json = nlohmann::json;

// Samples of shards lie in the order in which somebody wrote them, often class by class.
Json default_shuffle(const SourceSpec& source) {
  if (!std::holds_alternative<WebdatasetSpec>(source.items)) return "none";
  return {{"block", 512}, {"interleave", 16}};
}

// Fills in the run's rows.
Result<Shuffle::Bucket> read_bucket(const Node& node, Json& value, const BatchSpec& batch,
                                    const ParseOptions& options) {
  constexpr std::uint64_t kDefaultRun = 4;  // times the batch
  const bool given = value.contains("run");
  if (!given)
    value["run"] =
        options.bucket_run.value_or(kDefaultRun * static_cast<std::uint64_t>(batch.size));
  Shuffle::Bucket bucket{.by = text_of(value, "by"),
                         .window = value.at("window").get<std::uint64_t>(),
                         .run = value.at("run").get<std::uint64_t>()};
  if (bucket.run < bucket.window) return bucket;
  const Node* const window = node.find("window");
  const std::string fixed = options.bucket_run ? " as it was applied" : ", 4 times batch.size";
  return tl::unexpected<Status>(
      (window != nullptr ? *window : node)
          .fail("shuffle.global.bucket.window: " + std::to_string(bucket.window) +
                " rows are not more than one run of " + std::to_string(bucket.run) +
                (given ? "" : fixed) +
                ", so that none would go by its length: make the window "
                "larger, or set 'run: ROWS' to less"));
}

Result<Shuffle> read_shuffle(const Node* node, Json& value, const BatchSpec& batch,
                             const ParseOptions& options) {
  Shuffle shuffle;
  if (value.is_object() && value.contains("global")) {
    shuffle.kind = Shuffle::Kind::kGlobal;
    SPDLD_ASSIGN(shuffle.bucket, read_bucket(*node->find("global")->find("bucket"),
                                             value["global"]["bucket"], batch, options));
  } else if (value.is_object()) {
    shuffle.kind = Shuffle::Kind::kBlock;
    shuffle.block = value.at("block").get<std::uint64_t>();
    shuffle.interleave = value.at("interleave").get<std::uint64_t>();
  } else {
    shuffle.kind = value == "global" ? Shuffle::Kind::kGlobal : Shuffle::Kind::kNone;
  }
  return shuffle;
}

Location stage_where(const Node& node) {
  if (node.kind != Node::Kind::kMap) return node.where();
  Location where = node.where();
  where.line = node.entries.front().line;
  where.column = node.entries.front().column;
  return where;
}

Result<StageSpec> read_stage(const Node& node, Json& value, const Registry& registry,
                             std::size_t index) {
  const auto tagged = value.begin();
  SPDLD_TRY(complete_call(node, tagged.value()));
  StageSpec stage;
  stage.op = tagged.key();
  stage.where = stage_where(node);
  const std::string name = "stages[" + std::to_string(index) + "]." + stage.op + ": ";
  const auto fail = [&](const std::string& what) {
    return error(Code::kInvalidArgument, stage.where.text() + ": " + name + what);
  };
  if (index == 0 && stage.op != "fetch") {
    return fail("the first stage must be 'fetch', which brings an item's bytes");
  }
  if (index > 0 && stage.op == "fetch") return fail("an item is fetched once, by the first stage");

  const OpInfo* op = registry.find(stage.op);
  SPDLD_CHECK(op != nullptr);
  std::map<std::string, ParamValue> params;
  for (const ParamInfo& param : op->params) {
    const auto given = tagged.value().find(param.name);
    if (given != tagged.value().end()) params.emplace(param.name, param_value(param, *given));
  }
  stage.params = Params(std::move(params));
  if (const auto given = tagged.value().find("concurrency"); given != tagged.value().end()) {
    stage.concurrency = given->get<int>();
  }
  if (op->make) {
    const Result<std::unique_ptr<Op>> made = op->make(stage.params);
    if (!made) {
      // Ops name themselves in what they say.
      std::string why = made.error().message();
      const std::string self = stage.op + ": ";
      if (why.starts_with(self)) why.erase(0, self.size());
      return fail(why);
    }
  }
  return stage;
}

Result<CollateSpec> read_collate(const Node& node, const Json& value, const std::string& name) {
  using Kind = CollateSpec::Kind;
  CollateSpec collate;
  collate.where = node.where();
  const auto kind_of = [](const Json& text) {
    return text == "stack"    ? Kind::kStack
           : text == "ragged" ? Kind::kRagged
           : text == "bytes"  ? Kind::kBytes
                              : Kind::kPad;
  };
  if (value.is_string()) {
    collate.kind = kind_of(value);
    return collate;
  }
  if (const auto kind = value.find("kind"); kind != value.end()) collate.kind = kind_of(*kind);
  if (const auto pad = value.find("pad"); pad != value.end()) {
    if (collate.kind && *collate.kind != Kind::kPad)
      return tl::unexpected<Status>(node.fail(
          "batch.collate." + name + ": 'pad' fills rows up, so its kind is pad: leave 'kind' out"));
    collate.kind = Kind::kPad;
    collate.pad_value = pad->get<double>();
  }
  if (const auto multiple = value.find("multiple_of"); multiple != value.end()) {
    if (collate.kind != Kind::kPad)
      return tl::unexpected<Status>(node.fail("batch.collate." + name +
                                              ".multiple_of: only padded rows are rounded up; add "
                                              "'pad: 0', or leave it out"));
    collate.multiple_of = multiple->get<std::int64_t>();
  }
  if (const auto most = value.find("max_bytes"); most != value.end())
    collate.max_bytes = most->get<std::uint64_t>();
  return collate;
}

Result<BatchSpec> read_batch(const Node& node, const Json& value) {
  BatchSpec batch;
  batch.size = value.at("size").get<std::int64_t>();
  const Json& last = value.at("last");
  batch.last = last == "pad" ? Tail::kPad : last == "keep" ? Tail::kKeep : Tail::kDrop;
  batch.layout = value.at("layout") == "NHWC" ? Layout::kNHWC : Layout::kNCHW;
  if (const auto given = value.find("max_bytes"); given != value.end()) {
    batch.max_bytes = given->get<std::uint64_t>();
  }
  if (const auto given = value.find("collate"); given != value.end()) {
    const Node& at = *node.find("collate");
    for (const auto& [name, how] : given->items()) {
      SPDLD_ASSIGN(batch.collate[name], read_collate(*at.find(name), how, name));
    }
  }
  return batch;
}

ErrorPolicy read_on_error(const Json& value) {
  ErrorPolicy policy;
  policy.decode =
      value.at("decode") == "fail" ? ErrorPolicy::OnDecode::kFail : ErrorPolicy::OnDecode::kReplace;
  policy.io.retries = value.at("io").at("retry").get<int>();
  policy.budget_fraction = value.at("budget").at("fraction").get<double>();
  policy.budget_min = value.at("budget").at("min").get<std::int64_t>();
  return policy;
}

CacheSpec read_cache(const Node& node, const Json& value) {
  CacheSpec cache;
  cache.location = node.where();
  const auto index_in = [&](const auto& names, const char* key) {
    return std::find(names.begin(), names.end(), text_of(value, key)) - names.begin();
  };
  cache.form = static_cast<CacheSpec::Form>(index_in(kCacheForms, "form"));
  cache.where = static_cast<CacheSpec::Where>(index_in(kCacheWheres, "where"));
  cache.size_bytes = value.at("size").get<std::uint64_t>();
  return cache;
}

Repeat read_repeat(const Json& value) {
  return {.rows = value.at("rows").get<std::uint32_t>(),
          .adjacent = value.at("adjacent").get<bool>()};
}

}  // namespace

Status check_batch_size(const PipelineSpec& spec) {
  const auto size = static_cast<std::uint64_t>(spec.batch.size);
  const std::uint64_t group = spec.shuffle.repeat.group();
  if (group == 0 || size % group == 0) return {};
  return {Code::kInvalidArgument,
          spec.repeat_where.text() + ": repeat: the " + std::to_string(group) +
              " rows of an item lie in one batch, and batches of " + counted(size, "row") +
              " would part some: take a multiple of " + std::to_string(group) + ", such as " +
              std::to_string(std::max(size / group, std::uint64_t{1}) * group) +
              ", or write 'adjacent: false'"};
}

Result<PipelineSpec> parse_pipeline(std::string_view text, const std::string& file_name,
                                    const Registry& registry, const ParseOptions& options) {
  if (text.size() > kMaxFileBytes) {
    return error(Code::kInvalidArgument, file_name + ": larger than " +
                                             std::to_string(kMaxFileBytes) +
                                             " bytes; is this a pipeline?");
  }
  auto document =
      std::make_shared<const Document>(Document{.name = file_name, .directory = options.directory});
  SPDLD_ASSIGN(Node root,
               parse_extended(text, std::move(document), options.read_file, "a pipeline"));
  PipelineSpec spec;
  SPDLD_ASSIGN(spec.vars, resolve_vars(root, options.vars, options.env));
  SPDLD_ASSIGN(Json json, check(root, pipeline_shape(registry), ""));

  spec.name = text_of(json, "pipeline");
  spec.seed = json.at("seed").get<std::uint64_t>();
  SPDLD_ASSIGN(spec.source, read_source(*root.find("source"), json["source"]));
  if (!json.contains("shuffle")) json["shuffle"] = default_shuffle(spec.source);
  const Node& stages = *root.find("stages");
  for (std::size_t i = 0; i < stages.items.size(); ++i) {
    SPDLD_ASSIGN(StageSpec stage, read_stage(stages.items[i], json["stages"][i], registry, i));
    spec.stages.push_back(std::move(stage));
  }
  SPDLD_ASSIGN(spec.batch, read_batch(*root.find("batch"), json.at("batch")));
  const Node* const shuffle = root.find("shuffle");
  SPDLD_ASSIGN(spec.shuffle, read_shuffle(shuffle, json["shuffle"], spec.batch, options));
  if (spec.shuffle.bucket)
    spec.lengths_where = shuffle->find("global")->find("bucket")->find("by")->where();
  if (const auto given = json.find("repeat"); given != json.end()) {
    spec.shuffle.repeat = read_repeat(*given);
    spec.repeat_where = root.find("repeat")->where();
    SPDLD_TRY(check_batch_size(spec));
    if (spec.shuffle.repeat.rows == 1) json.erase(given);  // it is as without
  }
  if (text_of(json.at("delivery"), "device") == "cuda")
    spec.delivery.device = DeliverySpec::Device::kCuda;
  if (json.at("delivery").value("on_unavailable", "fail") == "host")
    spec.delivery.on_unavailable = DeliverySpec::Unavailable::kHost;
  spec.delivery.prefetch = json.at("delivery").at("prefetch").get<int>();
  if (text_of(json.at("delivery"), "absent_replica") == "go_on")
    spec.delivery.absent_replica = AbsentReplica::kGoOn;
  spec.on_error = read_on_error(json.at("on_error"));
  if (const auto given = json.find("cache"); given != json.end()) {
    spec.cache = read_cache(*root.find("cache"), *given);
  }
  // Keys sorted, numbers in their shortest form.
  spec.canonical_text = json.dump();
  return spec;
}

}  // namespace spdld::spec
