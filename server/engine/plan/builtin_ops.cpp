// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/builtin_ops.h"

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "engine/plan/row_filter.h"
#include "media/ops.h"
#include "op/call_op.h"
#include "transform/ops.h"

namespace spdld::engine {

Registry builtin_ops(const std::shared_ptr<media::SeekIndexes>& indexes) {
  std::vector<OpInfo> all;
  all.push_back(
      {.name = "fetch",
       .doc = "Brings an item's bytes from its source; `concurrency` bounds the reads in flight.",
       .params = {},
       .make = [](const Params&) -> Result<std::unique_ptr<Op>> {
         return std::make_unique<FetchOp>();
       }});
  for (std::vector<OpInfo> ops : {media::ops(indexes), transform::ops()})
    std::move(ops.begin(), ops.end(), std::back_inserter(all));
  all.push_back(filter_op());
  all.push_back(python_op());
  return Registry(std::move(all));
}

}  // namespace spdld::engine
