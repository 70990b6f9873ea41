// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "base/status.h"

namespace spdld {

enum class ValueType : std::uint8_t {
  kInt64 = 1,
  kFloat64 = 2,
  kBool = 3,
  kText = 4,  // UTF-8
  kInt64List = 5,
  kFloat64List = 6,
};

// One value of an item that the listing knows, such as its label or its caption: the alternatives
// stand in the order of ValueType. Texts and lists lie in memory of whoever gave the value.
using Value = std::variant<std::int64_t, double, bool, std::string_view,
                           std::span<const std::int64_t>, std::span<const double>>;

inline ValueType type_of(const Value& value) { return static_cast<ValueType>(value.index() + 1); }

// What stands for a value of the type that is not there: 0, false, or an empty text or list.
Value no_value(ValueType type);

std::string_view value_type_name(ValueType type);  // "int64", "text", "list of float64"
// Of the word that pipelines have for it: "float64_list".
Result<ValueType> parse_value_type(std::string_view word);

}  // namespace spdld
