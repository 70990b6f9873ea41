// SPDX-License-Identifier: Apache-2.0
#include "media/record/decode_json.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "media/record/json_task.h"
#include "op/json_values.h"
#include "op/op.h"

namespace spdld::media {
namespace {

class DecodeJson final : public Op {
 public:
  struct Options {
    std::uint64_t max_bytes = 0;
    bool keep = false;
  };

  DecodeJson(std::string field, std::vector<JsonTask::Found> found, Options options)
      : Op({std::move(field)}), found_(std::move(found)), options_(options) {}

  Status plan(FieldTable& table, const StageKey& key, std::string&) const override {
    auto encoded = table.encoded(fields().front(), key.name);
    if (!encoded) return std::move(encoded).error();
    Field& part = **encoded;
    auto task = std::make_unique<JsonTask>();
    task->name = part.name;
    task->request = table.request(part);
    task->max_bytes = options_.max_bytes;
    task->found = found_;
    // What is taken out of a document is no larger than the document, but that a number of one
    // digit with its comma takes 8 bytes.
    const std::uint64_t most =
        std::min<std::uint64_t>(part.max_bytes.value_or(~std::uint64_t{0}), options_.max_bytes);
    if (options_.keep)
      task->keep(
          {.name = part.name, .kind = FieldKind::kBytes, .text = true, .max_row_bytes = most});
    Field* behind = &part;
    for (JsonTask::Found& found : task->found) {
      auto made = table.make_value(found.field, found.type, *behind, key.name);
      if (!made) return std::move(made).error();
      behind = *made;
      found.value = behind->index;
      behind->max_bytes = found.type == ValueType::kText ? most : 4 * most + 8;
    }
    part.kind = Field::Kind::kDecoded;
    part.chain = std::make_unique<JsonChain>(std::move(task));
    return {};
  }

 private:
  std::vector<JsonTask::Found> found_;
  Options options_;
};

Result<std::unique_ptr<Op>> make_decode_json(const Params& params) {
  std::vector<JsonTask::Found> all;
  for (const auto& [field, keys] : params.get<FieldMap>("values")) {
    JsonTask::Found found{.field = field, .pointer = keys.at("pointer")};
    auto tokens = json_pointer(found.pointer);
    if (!tokens) return tl::unexpected(tokens.error().with_context("values." + field));
    found.tokens = *std::move(tokens);
    SPDLD_ASSIGN(found.type, parse_value_type(keys.at("type")));
    all.push_back(std::move(found));
  }
  if (all.empty() || all.size() > JsonValues::kMaxPointers)
    return error(Code::kInvalidArgument, "values must name 1 to " +
                                             std::to_string(JsonValues::kMaxPointers) +
                                             " fields, as in 'values: {caption: /caption}'");
  return std::make_unique<DecodeJson>(
      params.get<std::string>("field"), std::move(all),
      DecodeJson::Options{
          .max_bytes = static_cast<std::uint64_t>(params.get<std::int64_t>("max_bytes")),
          .keep = params.get<bool>("keep")});
}

std::vector<ParamInfo> value_keys() {
  return {{.name = "pointer",
           .type = ParamType::kString,
           .doc = "where it stands in the document, as RFC 6901 has it: /size/0"},
          {.name = "type",
           .type = ParamType::kString,
           .doc = "what it is",
           .default_value = std::string("text"),
           .choices = {"int64", "float64", "bool", "text", "int64_list", "float64_list"}}};
}

}  // namespace

OpInfo decode_json_op() {
  return {
      .name = "decode_json",
      .doc =
          "Takes values out of a field that is JSON: texts, numbers and lists of numbers, which "
          "become fields.",
      .params = {{.name = "field",
                  .type = ParamType::kString,
                  .doc = "the field whose bytes are JSON",
                  .default_value = std::string("json")},
                 {.name = "values",
                  .type = ParamType::kFieldMap,
                  .doc = "the fields that it makes, and where each stands in the document",
                  .keys = value_keys()},
                 {.name = "max_bytes",
                  .type = ParamType::kInt,
                  .doc = "a document of more bytes is an error of the item",
                  .default_value = std::int64_t{1} << 20,
                  .min = 1,
                  .max = static_cast<double>(JsonValues::kMaxBytes)},
                 {.name = "keep",
                  .type = ParamType::kBool,
                  .doc = "whether the document itself is delivered, too, as text",
                  .default_value = false}},
      .make = make_decode_json};
}

}  // namespace spdld::media
