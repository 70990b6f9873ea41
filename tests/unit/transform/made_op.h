// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "op/op.h"
#include "transform/ops.h"

namespace spdld::transform {

// Makes an op as the compiler does: what is not given has the table's default.
inline Result<std::unique_ptr<Op>> make_op(const std::string& name,
                                           std::map<std::string, ParamValue> values) {
  const Registry registry(ops());
  const OpInfo* const info = registry.find(name);
  if (info == nullptr) return error(Code::kNotFound, name);
  for (const ParamInfo& param : info->params) {
    if (!values.contains(param.name) && param.default_value) {
      values[param.name] = *param.default_value;
    }
    EXPECT_TRUE(values.contains(param.name) || param.nullable) << param.name;
  }
  return info->make(Params(std::move(values)));
}

template <typename Kind>
std::unique_ptr<Kind> made(const std::string& name, std::map<std::string, ParamValue> values) {
  Result<std::unique_ptr<Op>> op = make_op(name, std::move(values));
  if (!op) {
    ADD_FAILURE() << op.error().message();
    return nullptr;
  }
  Kind* const kind = dynamic_cast<Kind*>(op->get());
  EXPECT_NE(kind, nullptr);
  (void)op->release();
  return std::unique_ptr<Kind>(kind);
}

inline std::string refusal(const std::string& name, std::map<std::string, ParamValue> values) {
  const Result<std::unique_ptr<Op>> op = make_op(name, std::move(values));
  return op ? "made" : op.error().message();
}

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<double>;

}  // namespace spdld::transform
