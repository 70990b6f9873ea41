// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "op/field_chain.h"
#include "op/op.h"

namespace spdld::engine {

// Everything between an image's encoded bytes and its row in the batch, run as one task on one core
// while the pixels are in its cache.
class ImageTask final : public FieldTask {
 public:
  const DecodeImageOp* decode = nullptr;
  std::size_t request = 0;  // the plan's, which brings its bytes
  std::string decode_key;   // the op and all its parameters: the same text makes the same pixels
  std::vector<GeometryStep> geometry;
  PixelFormat format;
  Layout layout = Layout::kNCHW;
  std::optional<Size> output;  // none: rows differ
  // Whether this image's size is the canvas of its sample.
  bool is_canvas = false;
  // Images that share draws have one leader among the sample's images, by its number; whether this
  // one has to be of its leader's size.
  std::size_t leader = 0;
  bool follows = false;

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  std::unique_ptr<FieldWorker> make_worker() const override;
  std::int64_t max_pixels() const override { return decode->max_pixels(); }
  std::span<const GeometryStep> steps() const override { return geometry; }
  bool needs_canvas() const override { return follows; }
  // The one tensor, named `name`: called once, when all else is set.
  void set_tensor(const std::string& name);
  std::vector<std::int64_t> shape_of(Size size) const;

  // Of the pixels that the decoder makes.
  int bytes_per_value() const;
  int pixel_bytes() const { return decode->channels() * bytes_per_value(); }
  // An image of them whose rows lie one behind the other.
  ImageView packed(const std::uint8_t* data, Size size) const;

 private:
  std::vector<TensorSpec> tensors_;
};

// What decode_image begins, and what geometry and pixel ops append to.
class ImageChain final : public FieldChain {
 public:
  ImageChain(const DecodeImageOp& op, std::size_t request, std::string decode_key, Layout layout);

  std::string_view noun() const override { return is_mask() ? "masks" : "images"; }
  bool has_geometry() const override { return true; }
  bool has_pixels() const override { return true; }
  bool is_canvas() const override { return !is_mask(); }
  std::string_view moved_by() const override { return moved_by_; }
  Status append(const GeometryOp& op, const StageKey& key) override;
  Status append(const PixelOp& op, const StageKey& key, std::string& doubt) override;
  Result<std::unique_ptr<FieldTask>> finish(const std::string& name) override;

 private:
  bool is_mask() const { return task_->decode->is_index(); }

  std::unique_ptr<ImageTask> task_ = std::make_unique<ImageTask>();
  std::optional<Size> size_;  // of the images so far, if it is one
  std::string moved_by_;      // the geometry op
  std::string converted_by_;  // the pixel op
};

}  // namespace spdld::engine
