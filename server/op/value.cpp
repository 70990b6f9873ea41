// SPDX-License-Identifier: Apache-2.0
#include "op/value.h"

namespace spdld {

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

}  // namespace spdld
