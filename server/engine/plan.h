// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/batch_layout.h"
#include "op/op.h"
#include "op/registry.h"
#include "spec/pipeline_spec.h"

namespace spdld::engine {

// One op of a chain with the key of its draws: a hash of the op's name and of how many of that name
// stand before it, so that adding a stage leaves the others' draws alone.
struct GeometryStep {
  const GeometryOp* op = nullptr;
  std::uint64_t draw_key = 0;
};

// Everything between an image's encoded bytes and its row in the slot, run as one task on one core
// while the pixels are in its cache.
struct ImageTask {
  const DecodeImageOp* decode = nullptr;
  std::string decode_key;  // the op and all its parameters: the same text makes the same pixels
  std::vector<GeometryStep> geometry;
  PixelFormat format;
  Layout layout = Layout::kNCHW;
  Size output;
};

// A stage as it runs, which may be several of the spec's.
struct StagePlan {
  std::string name;     // "decode_image + random_resized_crop + normalize"
  int concurrency = 0;  // tasks at once; 0: as many as there are workers
};

// A pipeline compiled: what is fused into what, and what a batch looks like. The spec says what,
// the plan how. Immutable and shared by all runs; holds the ops that its steps point to.
struct Plan {
  spec::PipelineSpec spec;
  std::vector<std::unique_ptr<Op>> ops;

  // The fields of a batch, the source's first one first. fields[0] is made by `image`, or holds the
  // encoded bytes where there is none; the others are scalars that the source knows.
  std::vector<TensorSpec> tensors;
  BatchLayout layout;
  std::optional<ImageTask> image;

  StagePlan fetch;
  StagePlan process;  // decode and transform, or packing of encoded bytes

  // What looks like a slip, with its place in the text, though it can be run.
  std::vector<std::string> doubts;

  // Slots that a consumer needs: those it may hold, and those that are being filled meanwhile.
  std::uint32_t slots_for(std::uint32_t credits) const;
};

// `fields` are the source's. An error names the stage with file:line:col, or the field.
Result<std::shared_ptr<const Plan>> compile(spec::PipelineSpec spec, const Registry& registry,
                                            const std::vector<TensorSpec>& fields);

}  // namespace spdld::engine
