// SPDX-License-Identifier: Apache-2.0
#include "op/call_op.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace spdld {
namespace {

using Kind = CallField::Kind;

constexpr std::int64_t kMostExtent = std::int64_t{1} << 31;

struct Scalar {
  std::string_view name;
  Kind kind;
};
constexpr std::array<Scalar, 5> kScalars{{{"bytes", Kind::kBytes},
                                          {"text", Kind::kText},
                                          {"int64", Kind::kInt64},
                                          {"float64", Kind::kFloat64},
                                          {"bool", Kind::kBool}}};

tl::unexpected<Status> refused(const std::string& what) {
  return error(Code::kInvalidArgument, "python: " + what);
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// "60s", "500ms", "2min"
Result<std::chrono::milliseconds> parse_timeout(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = std::string_view(text).substr(end);
  const std::int64_t scale = unit == "ms" ? 1 : unit == "s" ? 1000 : unit == "min" ? 60'000 : 0;
  std::int64_t count = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + end, count);
  constexpr std::int64_t kMost = 24 * 3'600'000;
  if (scale == 0 || parsed.ec != std::errc() || count < 1 || count > kMost / scale)
    return refused("timeout: expected a time from 1ms to 1440min, such as 60s, got '" + text + "'");
  return std::chrono::milliseconds(count * scale);
}

// "mypkg.aug:cutout" or "aug.py:cutout"
Status check_call(const std::string& call) {
  const std::size_t colon = call.rfind(':');
  const auto is_dotted = [](std::string_view name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return c == '.' || c == '_' || static_cast<unsigned char>(c) >= 0x80 ||
             std::string_view("0123456789").find(c) != std::string_view::npos ||
             ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    });
  };
  const std::string_view text(call);
  if (colon == std::string::npos || !is_dotted(text.substr(colon + 1)) || colon == 0)
    return {Code::kInvalidArgument,
            "python: call: expected MODULE:FUNCTION or FILE.py:FUNCTION, such as "
            "'mypkg.aug:cutout', got '" +
                call + "'"};
  const std::string_view module = text.substr(0, colon);
  if (module.ends_with(".py") || is_dotted(module)) return {};
  return {Code::kInvalidArgument, "python: call: '" + std::string(module) +
                                      "' is neither a module's name nor a file that ends in .py"};
}

bool may_be_sound(const CallField& field) {
  constexpr std::int64_t kMostChannels = 64;
  if (field.kind != Kind::kArray || field.dtype != DType::kFloat32) return false;
  if (field.shape.size() == 1) return true;
  return field.shape.size() == 2 && field.shape[0] >= 1 && field.shape[0] <= kMostChannels;
}

// Of the fields that `key` declares.
Result<std::vector<CallField>> declared_fields(const Params& params, const char* key) {
  std::vector<CallField> fields;
  for (const auto& [name, said] : params.get<FieldMap>(key)) {
    const std::string place = std::string(key) + "." + name;
    SPDLD_ASSIGN(CallField field, parse_call_field(place, name, said.at("type")));
    if (const auto rate = said.find("sample_rate"); rate != said.end()) {
      field.sample_rate = std::stoi(rate->second);  // within the bounds of the table
      if (!may_be_sound(field))
        return refused(place +
                       ": sample_rate is of sound, which is float32[-1] or, of two channels, "
                       "float32[2,-1], and this is " +
                       declared_as(field));
    }
    fields.push_back(std::move(field));
  }
  if (fields.empty()) return refused(std::string(key) + ": names at least one field");
  return fields;
}

// Of the parameters that functions and datasets have both.
Result<CallSpec> read_call(const Params& params, const char* fields) {
  CallSpec call{.call = params.get<std::string>("call"),
                .args = params.get<std::string>("args"),
                .version = params.get<std::int64_t>("version")};
  SPDLD_TRY(check_call(call.call));
  SPDLD_ASSIGN(call.out, declared_fields(params, fields));
  SPDLD_ASSIGN(call.timeout, parse_timeout(params.get<std::string>("timeout")));
  if (params.has("max_rss"))
    call.max_rss = static_cast<std::uint64_t>(params.get<std::int64_t>("max_rss"));
  call.spawn = params.get<std::string>("start") == "spawn";
  return call;
}

Result<std::unique_ptr<Op>> make_python(const Params& params) {
  SPDLD_ASSIGN(CallSpec call, read_call(params, "out"));
  for (const std::string& name : params.get<std::vector<std::string>>("in")) {
    const bool twice = std::any_of(call.in.begin(), call.in.end(),
                                   [&](const CallField& field) { return field.name == name; });
    if (twice) return refused("in: '" + name + "' stands twice");
    call.in.push_back({.name = name});
  }
  return std::make_unique<CallOp>(std::move(call),
                                  params.get<std::string>("rejected") == "replace");
}

ParamInfo fields_param(std::string name, std::string doc) {
  return {.name = std::move(name),
          .type = ParamType::kFieldMap,
          .doc = std::move(doc),
          .keys = {{.name = "type",
                    .type = ParamType::kString,
                    .doc = "dtype and shape, -1 where rows differ: uint8[224,224,3]; or "
                           "int64, float64, bool, text, bytes"},
                   {.name = "sample_rate",
                    .type = ParamType::kInt,
                    .doc = "of sound, float32[-1] or float32[2,-1]: its rate in Hz, and "
                           "ops on sound go on with it",
                    .min = 1000,
                    .max = 768000,
                    .nullable = true}},
          .ordered = true};
}

// Those that functions and datasets have both, but for `call` and the fields.
std::vector<ParamInfo> common_params(std::string args_doc, std::string rejected_doc) {
  return {{.name = "args",
           .type = ParamType::kObject,
           .doc = std::move(args_doc),
           .default_value = std::string("{}")},
          {.name = "version",
           .type = ParamType::kInt,
           .doc = "of the code: another one makes other rows",
           .default_value = std::int64_t{1},
           .min = 0,
           .max = 1e15},
          {.name = "timeout",
           .type = ParamType::kString,
           .doc = "a row that takes longer is the fault of its item, and its process is "
                  "ended: 500ms, 60s, 5min",
           .default_value = std::string("60s")},
          {.name = "max_rss",
           .type = ParamType::kBytes,
           .doc = "a process that takes more memory, with what it shares with others, is "
                  "ended as one is that takes too long; 0: unbounded",
           .nullable = true},
          {.name = "rejected",
           .type = ParamType::kString,
           .doc = std::move(rejected_doc),
           .default_value = std::string("replace"),
           .choices = {"replace", "invalid"}},
          {.name = "start",
           .type = ParamType::kString,
           .doc = "fork: one process imports the module, and the others are made of it; "
                  "spawn: each imports it",
           .default_value = std::string("fork"),
           .choices = {"fork", "spawn"}}};
}

}  // namespace

Result<CallField> parse_call_field(const std::string& place, const std::string& name,
                                   const std::string& declared) {
  CallField field{.name = name};
  const std::string wanted = place + ": expected a type such as uint8[224,224,3], " +
                             "float32[-1,4], int64, float64, bool, text or bytes, got '" +
                             declared + "'";
  const std::string_view text = trimmed(declared);
  for (const Scalar& scalar : kScalars) {
    if (text != scalar.name) continue;
    field.kind = scalar.kind;
    return field;
  }
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']')) return refused(wanted);
  const auto dtype = parse_dtype(trimmed(text.substr(0, open)));
  if (!dtype || *dtype == DType::kBFloat16) return refused(wanted);
  field.dtype = *dtype;
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  while (!trimmed(rest).empty() || !field.shape.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view extent = trimmed(rest.substr(0, comma));
    std::int64_t value = 0;
    const auto parsed = std::from_chars(extent.data(), extent.data() + extent.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != extent.data() + extent.size() || value == 0 ||
        value < -1 || value > kMostExtent || field.shape.size() == wire::kMaxRank)
      return refused(wanted);
    field.shape.push_back(value);
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  return field;
}

std::string declared_as(const CallField& field) {
  for (const Scalar& scalar : kScalars) {
    if (field.kind == scalar.kind) return std::string(scalar.name);
  }
  std::string shape;
  for (const std::int64_t extent : field.shape)
    shape += (shape.empty() ? "" : ",") + std::to_string(extent);
  return std::string(dtype_name(field.dtype)) + "[" + shape + "]";
}

OpInfo python_op() {
  OpInfo op{
      .name = "python",
      .doc =
          "Calls a function of your own on each row, in processes of yours; `concurrency` "
          "is how many of these there are.",
      .params = {{.name = "call",
                  .type = ParamType::kString,
                  .doc = "the function: MODULE:FUNCTION, or FILE.py:FUNCTION of a file beside this "
                         "one"},
                 {.name = "in",
                  .type = ParamType::kStringList,
                  .doc = "the fields that it is given, as arguments of these names",
                  .min_items = 1,
                  .max_items = 64},
                 fields_param("out", "the fields that it gives back")},
      .make = make_python};
  for (ParamInfo& param :
       common_params("further arguments, by name",
                     "what becomes of rows for which it gives None: replace, another item takes "
                     "the place, always the same, and the row is valid; invalid, the row stays, "
                     "with zeros or nothing in these fields, and is not valid"))
    op.params.push_back(std::move(param));
  return op;
}

std::vector<ParamInfo> dataset_params() {
  std::vector<ParamInfo> params{
      {.name = "call",
       .type = ParamType::kString,
       .doc =
           "what makes the dataset, or is it: MODULE:NAME, or FILE.py:NAME of a file beside this "
           "one"},
      fields_param("fields", "the fields that its items have, in the order of their tuples")};
  for (ParamInfo& param :
       common_params("its arguments, by name",
                     "what becomes of items that are None: replace, another item takes the place, "
                     "always the same, and the row is valid; invalid, the row stays, with zeros or "
                     "nothing in these fields, and is not valid"))
    params.push_back(std::move(param));
  params.push_back({.name = "concurrency",
                    .type = ParamType::kInt,
                    .doc = "processes; not given: as many as the rank that starts them may use "
                           "cores",
                    .min = 1,
                    .max = 1024,
                    .nullable = true});
  return params;
}

Result<DatasetSpec> read_dataset(const Params& params) {
  SPDLD_ASSIGN(CallSpec call, read_call(params, "fields"));
  call.is_dataset = true;
  for (CallField& field : call.out) field.max_bytes = kMostArrayBytes;
  call.in = {{.name = "index", .kind = Kind::kInt64}, {.name = "items", .kind = Kind::kInt64}};
  if (params.has("concurrency"))
    call.concurrency = static_cast<int>(params.get<std::int64_t>("concurrency"));
  return DatasetSpec{.call = std::move(call),
                     .replaces_rejected = params.get<std::string>("rejected") == "replace"};
}

}  // namespace spdld
