// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "op/field_chain.h"
#include "op/op.h"

namespace spdld::engine {

// What geometry and pixel ops append to: of images, and of the frames of clips, which share one
// draw.
class PixelChain : public FieldChain {
 public:
  bool has_geometry() const override { return true; }
  bool has_pixels() const override { return true; }
  std::string_view moved_by() const override { return moved_by_; }
  Status append(const GeometryOp& op, const StageKey& key) override;
  Status append(const PixelOp& op, const StageKey& key, std::string& doubt) override;

 protected:
  // Of what is decoded.
  PixelChain(int channels, DType dtype) : channels_(channels) { format_.dtype = dtype; }

  std::vector<GeometryStep> geometry_;
  PixelFormat format_;
  std::optional<Size> size_;  // of the pictures so far, if it is one

 private:
  const int channels_;
  std::string moved_by_;      // the geometry op
  std::string converted_by_;  // the pixel op
};

}  // namespace spdld::engine
