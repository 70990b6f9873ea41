// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "op/op.h"
#include "op/params.h"

namespace spdld {

// What is known of an op before one is made.
struct OpInfo {
  std::string name;  // as in YAML: "random_resized_crop"
  std::string doc;   // one sentence
  std::vector<ParamInfo> params;
  // The params were checked against the table; what a table cannot say (min <= max) fails here.
  std::function<Result<std::unique_ptr<Op>>(const Params&)> make;
};

// The ops there are, in the order they were given. Immutable; engine/plan/builtin_ops.cpp makes the
// one that the daemon uses.
class Registry {
 public:
  explicit Registry(std::vector<OpInfo> ops) : ops_(std::move(ops)) {}

  const OpInfo* find(std::string_view name) const {
    for (const OpInfo& op : ops_) {
      if (op.name == name) return &op;
    }
    return nullptr;
  }
  const std::vector<OpInfo>& ops() const { return ops_; }

 private:
  std::vector<OpInfo> ops_;
};

}  // namespace spdld
