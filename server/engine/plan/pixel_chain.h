// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  // The pixels that are decoded have these channels and values.
  PixelChain(int channels, DType dtype) : channels_(channels) { format_.dtype = dtype; }

  // Gives a task what the ops do, and names what it makes, of which more may be `known`.
  template <typename Task, typename... Known>
  Result<std::unique_ptr<FieldTask>> finish_task(std::unique_ptr<Task> task,
                                                 const std::string& name, const Known&... known) {
    task->geometry = std::move(geometry_);
    task->format = format_;
    task->output = size_;
    task->set_tensors(name, known...);
    return task;
  }

 private:
  const int channels_;
  std::vector<GeometryStep> geometry_;
  PixelFormat format_;
  std::optional<Size> size_;  // of the pictures so far, if it is one
  std::string moved_by_;      // the geometry op
  std::string converted_by_;  // the pixel op
};

}  // namespace spdld::engine
