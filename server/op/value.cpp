// SPDX-License-Identifier: Apache-2.0
#include "op/value.h"

#include <array>
#include <string>
#include <utility>

namespace spdld {

Value no_value(ValueType type) {
  switch (type) {
    case ValueType::kInt64: return std::int64_t{0};
    case ValueType::kFloat64: return 0.0;
    case ValueType::kBool: return false;
    case ValueType::kText: return std::string_view();
    case ValueType::kInt64List: return std::span<const std::int64_t>();
    case ValueType::kFloat64List: return std::span<const double>();
  }
  return std::int64_t{0};
}

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::kInt64: return "int64";
    case ValueType::kFloat64: return "float64";
    case ValueType::kBool: return "bool";
    case ValueType::kText: return "text";
    case ValueType::kInt64List: return "list of int64";
    case ValueType::kFloat64List: return "list of float64";
  }
  return "unknown";
}

Result<ValueType> parse_value_type(std::string_view word) {
  using Word = std::pair<std::string_view, ValueType>;
  constexpr std::array<Word, 6> kWords{{{"int64", ValueType::kInt64},
                                        {"float64", ValueType::kFloat64},
                                        {"bool", ValueType::kBool},
                                        {"text", ValueType::kText},
                                        {"int64_list", ValueType::kInt64List},
                                        {"float64_list", ValueType::kFloat64List}}};
  for (const auto& [known, type] : kWords) {
    if (known == word) return type;
  }
  return error(Code::kInvalidArgument, "'" + std::string(word) + "' is no type of values");
}

}  // namespace spdld
