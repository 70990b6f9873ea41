// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "op/op.h"
#include "op/params.h"
#include "op/registry.h"
#include "op/row_call.h"

namespace spdld {

// A stage that calls a function of the user's own on each row. The compiler knows it: it ends what
// stands before it, so that the function's arguments are made, and begins the fields that come
// back.
class CallOp final : public Op {
 public:
  // Of CallSpec::in the names alone are known: what they are follows from the stages before.
  CallOp(CallSpec call, bool replaces_rejected)
      : Op({}), call_(std::move(call)), replaces_rejected_(replaces_rejected) {}
  Status plan(FieldTable&, const StageKey&, std::string&) const override { return {}; }

  const CallSpec& call() const { return call_; }
  // Another item takes the place of a row for which it gives None; else the row is not valid.
  bool replaces_rejected() const { return replaces_rejected_; }

 private:
  const CallSpec call_;
  const bool replaces_rejected_;
};

// The stage `python`.
OpInfo python_op();

// What the source `python` may say, and what it has said.
std::vector<ParamInfo> dataset_params();
Result<DatasetSpec> read_dataset(const Params& params);

// A field as it is declared at `place`: "uint8[224,224,3]", "float32[-1,4]", "int64", "text".
Result<CallField> parse_call_field(const std::string& place, const std::string& name,
                                   const std::string& declared);
// The same again.
std::string declared_as(const CallField& field);

}  // namespace spdld
