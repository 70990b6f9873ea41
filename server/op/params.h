// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"

namespace spdld {

enum class ParamType {
  kBool,
  kInt,
  kBytes,  // a size, "64MiB": an integer in ParamValue
  kFloat,
  kString,
  kIntList,
  kFloatList,
  kStringList,
  kFieldMap,  // names of fields, and what is said of each, as texts: by ParamInfo::keys
  kObject,    // any map, as a text of JSON: a string in ParamValue
};

using FieldMap = std::vector<std::pair<std::string, std::map<std::string, std::string>>>;
using ParamValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                                std::vector<double>, std::vector<std::string>, FieldMap>;

// One parameter of an op, from which come the checks with file:line:col, the JSON Schema for
// editors, and the page in the docs.
struct ParamInfo {
  std::string name;
  ParamType type = ParamType::kInt;
  std::string doc;
  std::optional<ParamValue> default_value = std::nullopt;  // none: must be given
  // Bounds of a number, or of each number of a list; both ends may be taken.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // of a string; empty: any
  bool new_field = false;                 // of a string: it names a field that the op makes
  // How many numbers a list may hold. With scalar_ok a single number stands for a list of one.
  std::size_t min_items = 0;
  std::size_t max_items = std::numeric_limits<std::size_t>::max();
  bool scalar_ok = false;
  bool nullable = false;  // `null` is accepted and means: not given
  // Of a kFieldMap. The first is a text that must be given, and may stand alone for the map.
  std::vector<ParamInfo> keys = {};
  bool ordered = false;  // likewise: the fields stay in the order of the text, which counts
};

// Checked values by name, defaults filled in; a nullable parameter that was not given is absent.
class Params {
 public:
  Params() = default;
  explicit Params(std::map<std::string, ParamValue> values) : values_(std::move(values)) {}

  bool has(const std::string& name) const { return values_.contains(name); }

  // The name and type must be those of the op's table.
  template <typename T>
  const T& get(const std::string& name) const {
    const auto found = values_.find(name);
    SPDLD_CHECK(found != values_.end() && std::holds_alternative<T>(found->second));
    return std::get<T>(found->second);
  }

  const std::map<std::string, ParamValue>& values() const { return values_; }
  friend bool operator==(const Params&, const Params&) = default;

 private:
  std::map<std::string, ParamValue> values_;
};

}  // namespace spdld
