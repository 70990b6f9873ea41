// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/row_filter.h"

#include <memory>

namespace spdld::engine {
namespace {

// Why a condition cannot use a field that is no value at its stage, and what to do instead.
std::string unusable(const FieldTable& table, const Field& field) {
  const std::string present = field.name + "_present";
  for (const Field& other : table.fields()) {
    if (field.optional && other.name == present)
      return "no value; whether a row has it tells '" + present + "'";
  }
  if (field.kind == Field::Kind::kPart)
    return "bytes, and a filter reads values: 'decode_json' before it takes them out of JSON";
  const std::string noun(field.chain == nullptr ? "" : field.chain->noun());
  // A list of numbers, until a stage took it.
  if (!field.ops.empty() && (noun.empty() || noun == "boxes"))
    return "no value any more behind '" + field.ops.front() + "': put the filter before that";
  return "decoded" + (noun.empty() ? "" : " (" + noun + ")") +
         ", and a filter reads values: those that the listing knows, or that 'decode_json' takes "
         "out of JSON before it";
}

}  // namespace

Result<RowFilter> FilterOp::compile(const FieldTable& table,
                                    const source::ClassNames& classes) const {
  RowFilter filter{.where = {},
                   .values = {},
                   .text = where_,
                   .rejection = {.replaces = replaces_, .place = {}, .stage = "filter"}};
  std::vector<source::Columns::Info> names;
  source::UnknownNames unknown{.noun = "field"};
  for (const Field& field : table.fields()) {
    if (field.kind != Field::Kind::kValue) {
      unknown.others.emplace(field.name, unusable(table, field));
      continue;
    }
    names.push_back({.name = field.name, .type = field.type});
    filter.values.push_back(field.index);
  }
  SPDLD_ASSIGN(filter.where, source::Where::compile(where_, names, classes, unknown));
  return filter;
}

OpInfo filter_op() {
  return {.name = "filter",
          .doc =
              "Rejects rows in which a condition does not hold, before images, sound or video are "
              "decoded; a rejected row is no failure.",
          .params = {{.name = "where",
                      .type = ParamType::kString,
                      .doc = "the condition, as source.select has it, on the values that a row has "
                             "at this stage, by the names of their fields"},
                     {.name = "rejected",
                      .type = ParamType::kString,
                      .doc = "what becomes of rows that are rejected: replace, another item takes "
                             "the place, always the same, and the row is valid; invalid, the row "
                             "stays and is not valid",
                      .default_value = std::string("replace"),
                      .choices = {"replace", "invalid"}}},
          .make = [](const Params& params) -> Result<std::unique_ptr<Op>> {
            return std::make_unique<FilterOp>(params.get<std::string>("where"),
                                              params.get<std::string>("rejected") == "replace");
          }};
}

}  // namespace spdld::engine
