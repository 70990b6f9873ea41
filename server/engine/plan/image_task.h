// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/image_steps.h"
#include "engine/plan/pixel_chain.h"
#include "op/op.h"

namespace spdld::engine {

// Everything between an image's encoded bytes, or its pixels that a call gave back, and its row in
// the batch, run as one task on one core while the pixels are in its cache.
class ImageTask final : public FieldTask {
 public:
  const DecodeImageOp* decode = nullptr;  // null: `given` has the pixels
  std::size_t request = 0;                // the plan's, which brings its bytes
  std::optional<std::size_t> given;       // SampleInput::array
  StoredFormat stored;                    // of the pixels before all ops
  std::string decode_key;  // the op and all its parameters: the same text makes the same pixels
  std::vector<GeometryStep> geometry;
  std::uint64_t largest_known_pair = 0;  // known_bytes()
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
  std::int64_t max_pixels() const override { return decode != nullptr ? decode->max_pixels() : 0; }
  std::uint64_t known_bytes() const override { return largest_known_pair; }
  std::span<const GeometryStep> steps() const override { return geometry; }
  bool needs_canvas() const override { return follows; }
  std::optional<std::size_t> array() const override { return given; }
  // The one tensor, named `name`: called once, when all else is set.
  void set_tensors(const std::string& name, const PictureSizes& sizes);
  std::vector<std::int64_t> shape_of(Size size) const;

  int pixel_bytes() const { return stored.pixel_bytes(); }
  // An image of them whose rows lie one behind the other.
  ImageView packed(const std::uint8_t* data, Size size) const {
    return packed_view(stored, data, size);
  }

 private:
  std::vector<TensorSpec> tensors_;
};

// The chain that decode_image begins, or the first op on pixels that a call gave back.
class ImageChain final : public PixelChain {
 public:
  // `known`: of the field's pictures as they are decoded; called once, by finish(), if at all.
  using SizesOfField = std::function<PictureSizes(const std::string& field)>;
  ImageChain(const DecodeImageOp& op, std::size_t request, std::string decode_key, Layout layout,
             SizesOfField known);
  // `array`: whose pixels are of this format, and all of this size if there is one.
  ImageChain(std::size_t array, const StoredFormat& stored, std::optional<Size> size,
             Layout layout);

  std::string_view noun() const override {
    if (task_->given) return "pixels that a function gave back";
    return is_index() ? "masks" : "images";
  }
  bool is_index() const override { return task_->stored.is_index; }
  void interleave() override { task_->layout = Layout::kNHWC; }
  Result<std::unique_ptr<FieldTask>> finish(const std::string& name) override {
    return finish_task(std::move(task_), name,
                       [&] { return known_ ? known_(name) : PictureSizes{}; });
  }

 private:
  const SizesOfField known_;
  std::unique_ptr<ImageTask> task_ = std::make_unique<ImageTask>();
};

// Of an array that a call gives back: null, if it is no picture of [height, width, channels].
std::unique_ptr<ImageChain> chain_of_pixels(const Field& array, Layout layout);

}  // namespace spdld::engine
