// SPDX-License-Identifier: Apache-2.0
#include "ctl/init/stage_hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text/ascii.h"
#include "ctl/init/draft.h"

namespace spdld::ctl {
namespace {

using Json = nlohmann::ordered_json;  // keys in the order of the document

constexpr std::size_t kMaxField = 47;
constexpr std::size_t kMaxValues = 16;
constexpr std::size_t kMaxKey = 100;

// The numbers of a list, or of a list of lists that have one length: what decode_json takes.
std::optional<std::vector<Json>> numbers_of(const Json& value) {
  if (is_number_list(value)) return std::vector<Json>(value.begin(), value.end());
  if (!value.is_array()) return std::nullopt;
  std::vector<Json> numbers;
  for (const Json& row : value) {
    if (!is_number_list(row) || row.empty() || row.size() != value[0].size()) return std::nullopt;
    numbers.insert(numbers.end(), row.begin(), row.end());
  }
  return numbers;
}

std::string pointer_to(std::string_view key) {
  std::string pointer = "/";
  for (const char c : key) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
  return pointer;
}

}  // namespace

std::string field_name(std::string_view column, std::set<std::string>& taken) {
  std::string name;
  for (const char c : column) {
    if (name.empty() && !is_letter(c)) name = "column_";
    name += is_letter(c) || is_digit(c) ? c : '_';
  }
  name = name.substr(0, kMaxField);
  while (!taken.insert(name).second) name = name.substr(0, kMaxField - 1) + "_";
  return name;
}

bool is_number_list(const Json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const Json& each) { return each.is_number(); });
}

bool may_be_boxes(std::string_view name, std::size_t numbers) {
  return numbers % 4 == 0 && lower_case(name).find("box") != std::string::npos;
}

std::string boxes_stage(const std::string& field) {
  return fmt::format(
      "# - bounding_boxes: {{field: {}, format: xywh}}  # boxes do not follow crops and flips "
      "without this",
      field);
}

std::string mask_stage(const std::string& field) {
  return fmt::format("# - decode_image: {{field: {}, mode: index}}", field);
}

JsonHint hint_of_json(std::string_view document, const std::string& field,
                      std::set<std::string> taken) {
  const Json object = Json::parse(document, nullptr, false);
  JsonHint hint;
  if (!object.is_object()) return hint;
  std::string values;
  std::optional<std::string> boxes;
  for (const auto& [key, value] : object.items()) {
    const std::optional<std::vector<Json>> numbers = numbers_of(value);
    if (key.empty() || key.size() > kMaxKey || !numbers) continue;
    const bool box = may_be_boxes(key, numbers->size());
    if ((numbers->empty() && !box) || hint.fields.size() == kMaxValues) continue;
    const bool integers = std::all_of(numbers->begin(), numbers->end(),
                                      [](const Json& each) { return each.is_number_integer(); });
    const std::string name = field_name(key, taken);
    values +=
        fmt::format("{}{}: {{pointer: {}, type: {}}}", values.empty() ? "" : ", ", name,
                    yaml_text(pointer_to(key)), integers && !box ? "int64_list" : "float64_list");
    if (box && !boxes) boxes = name;
    hint.fields.push_back(name);
  }
  if (values.empty()) return hint;
  hint.stages.push_back(
      fmt::format("# - decode_json: {{field: {}, values: {{{}}}}}", field, values));
  if (boxes) hint.stages.push_back(boxes_stage(*boxes));
  return hint;
}

}  // namespace spdld::ctl
