// SPDX-License-Identifier: Apache-2.0
#include "spec/ops_page.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>
#include <variant>
#include <vector>

namespace spdld::spec {
namespace {

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

// A number as YAML has it: without a fraction where there is none.
std::string number(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

// "a, b or c"
std::string alternatives(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += code(names[i]);
  }
  return text;
}

std::string bounds(const ParamInfo& param) {
  const bool low = std::isfinite(param.min);
  const bool high = std::isfinite(param.max);
  if (low && high) return fmt::format(", {} to {}", number(param.min), number(param.max));
  if (low) return ", from " + number(param.min);
  return high ? ", up to " + number(param.max) : "";
}

std::string list_of(const ParamInfo& param, std::string_view one, std::string_view many) {
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  const std::string count =
      param.max_items == kAny
          ? (param.min_items > 1 ? fmt::format("at least {} ", param.min_items) : "")
      : param.min_items == param.max_items
          ? fmt::format("{} ", param.min_items)
          : fmt::format("{} to {} ", param.min_items, param.max_items);
  const std::string list = fmt::format("[{}{}]", count, many);
  return (param.scalar_ok ? fmt::format("{}, or {}", one, list) : list) + bounds(param);
}

// What a parameter takes.
std::string kind(const ParamInfo& param) {
  switch (param.type) {
    case ParamType::kBool: return "`true` or `false`";
    case ParamType::kInt: return "integer" + bounds(param);
    case ParamType::kBytes: return "a size such as `2GiB`";
    case ParamType::kFloat: return "number" + bounds(param);
    case ParamType::kString: return param.choices.empty() ? "text" : alternatives(param.choices);
    case ParamType::kIntList: return list_of(param, "integer", "integers");
    case ParamType::kFloatList: return list_of(param, "number", "numbers");
    case ParamType::kStringList: return list_of(param, "text", "texts");
    case ParamType::kFieldMap: break;
    case ParamType::kObject: return "{name: anything, ...}";
  }
  std::vector<std::string> keys;
  for (const ParamInfo& key : param.keys) keys.push_back(key.name);
  return fmt::format("{{field: {}, ...}}", keys.empty() ? "" : keys.front());
}

std::string quoted_list(const auto& values, const auto& show) {
  std::string list;
  for (const auto& value : values) list += (list.empty() ? "" : ", ") + show(value);
  return "[" + list + "]";
}

std::string shown(const ParamValue& value) {
  struct Show {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t integer) const { return std::to_string(integer); }
    std::string operator()(double real) const { return number(real); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<std::int64_t>& list) const {
      return quoted_list(list, *this);
    }
    std::string operator()(const std::vector<double>& list) const {
      return quoted_list(list, *this);
    }
    std::string operator()(const std::vector<std::string>& list) const {
      return quoted_list(list, *this);
    }
    std::string operator()(const FieldMap&) const { return "{}"; }
  };
  return code(std::visit(Show{}, value));
}

std::string default_of(const ParamInfo& param) {
  if (param.default_value) return shown(*param.default_value);
  return param.nullable ? "none" : "required";
}

// A cell ends at a bar.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string ops_page(const Registry& registry) {
  std::string page;
  for (const OpInfo& op : registry.ops()) {
    page += fmt::format("{}### {}\n\n{}\n", page.empty() ? "" : "\n", op.name, op.doc);
    if (op.params.empty()) continue;
    page += "\n| parameter | takes | default | |\n|---|---|---|---|\n";
    for (const ParamInfo& param : op.params) {
      page += fmt::format("| `{}` | {} | {} | {} |\n", param.name, cell(kind(param)),
                          default_of(param), cell(param.doc));
      for (const ParamInfo& key : param.keys)
        page += fmt::format("| `{}`: `{}` | {} | {} | {} |\n", param.name, key.name,
                            cell(kind(key)), default_of(key), cell(key.doc));
    }
  }
  return page;
}

}  // namespace spdld::spec
