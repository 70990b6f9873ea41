// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/plan/image_sizes.h"
#include "op/field_chain.h"
#include "op/op.h"

namespace spdld::engine {

// The chain of a field of pictures, which geometry and pixel ops append to: of an image, or of the
// frames of a clip, which share one draw.
class PixelChain : public FieldChain {
 public:
  bool has_geometry() const override { return true; }
  bool has_pixels() const override { return true; }
  std::string_view moved_by() const override { return moved_by_; }
  Status append(const GeometryOp& op, const StageKey& key) override;
  Status append(const PixelOp& op, const StageKey& key, std::string& doubt) override;

 protected:
  // The pixels before all ops have these channels and values, and are of this size if all have one.
  PixelChain(int channels, DType dtype, std::optional<Size> size = std::nullopt)
      : channels_(channels),
        pixel_bytes_(channels * static_cast<int>(wire::dtype_bytes(dtype))),
        size_(size) {
    if (size) known_ = Geometry::identity(*size);
    format_.dtype = dtype;
  }

  // Gives a task what the ops do, and names what it makes. `known` tells what is known of the sizes
  // of the pictures that are decoded; it is asked where the ops leave them different.
  template <typename Task, typename Known>
  Result<std::unique_ptr<FieldTask>> finish_task(std::unique_ptr<Task> task,
                                                 const std::string& name, const Known& known) {
    PictureSizes sizes;
    if (!size_) sizes = known();
    for (const GeometryStep& step : geometry_) sizes.one = step.op->output_size(sizes.one);
    task->geometry = std::move(geometry_);
    task->largest_known_pair = largest_known_pair_;
    task->format = format_;
    task->output = size_;
    task->set_tensors(name, sizes);
    return task;
  }

 private:
  // Follows pictures through `op` from the first resize on that gives all of them one size.
  void follow(const GeometryOp& op);

  const int channels_;
  const int pixel_bytes_;
  std::vector<GeometryStep> geometry_;
  std::optional<Geometry> known_;  // what ImageSteps will have in hand then
  std::uint64_t last_known_ = 0;   // of the picture that was made last
  std::uint64_t largest_known_pair_ = 0;
  PixelFormat format_;
  std::optional<Size> size_;  // of the pictures so far, if it is one
  std::string moved_by_;      // the geometry op
  std::string converted_by_;  // the pixel op
};

// The pictures that a task makes, named `noun`: of one shape, or of those that `sizes` tells of.
template <typename Task>
TensorSpec tensor_of_pictures(const Task& task, const std::string& name, const PictureSizes& sizes,
                              std::string noun, std::string ample_row) {
  TensorSpec tensor{.name = name,
                    .kind = task.output ? FieldKind::kDense : FieldKind::kRagged,
                    .dtype = task.format.dtype,
                    .shape = task.shape_of(task.output.value_or(Size{-1, -1}))};
  if (task.output) return tensor;
  tensor.ample_row = std::move(ample_row);
  tensor.noun = std::move(noun);
  tensor.sizes = sizes.differing;
  tensor.to_one_shape = "add a resize to [height, width], a center_crop or a random_resized_crop";
  if (sizes.one) tensor.seen_shape = task.shape_of(*sizes.one);
  return tensor;
}

}  // namespace spdld::engine
