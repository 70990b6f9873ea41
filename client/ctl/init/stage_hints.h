// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// Stages that `init` writes as comments, since they are for who wants them or guesses about data.
namespace spdld::ctl {

// A field's name that is like the column's or key's, and none of `taken`, which it joins.
std::string field_name(std::string_view column, std::set<std::string>& taken);

bool is_number_list(const nlohmann::ordered_json& value);
// Whether a list of that name and of so many numbers may be boxes.
bool may_be_boxes(std::string_view name, std::size_t numbers);

std::string boxes_stage(const std::string& field);
std::string mask_stage(const std::string& field);

// What would take lists of numbers out of a JSON document. No stages: it has none, or is no object.
struct JsonHint {
  std::vector<std::string> stages;
  std::vector<std::string> fields;  // that these make; each needs a bound in `batch`
};
// `field`: whose bytes the document is; `taken`: names of fields that are there.
JsonHint hint_of_json(std::string_view document, const std::string& field,
                      std::set<std::string> taken);

}  // namespace spdld::ctl
