// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "op/tensor_spec.h"
#include "spec/pipeline_spec.h"

namespace spdld::engine {

struct TensorSource;

// Decides how the rows of each tensor lie in a batch, as batch.collate says or as the tensor's kind
// has it, and what they may take. Behind each tensor that is padded stands one more then, with the
// lengths that its rows had. `made_by` names the stages, for messages.
Status collate(const spec::PipelineSpec& spec, std::vector<TensorSpec>& tensors,
               std::vector<TensorSource>& sources, const std::string& made_by);

}  // namespace spdld::engine
