// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/image_steps.h"
#include "engine/plan/pixel_chain.h"
#include "op/video.h"
#include "transform/image/image_target.h"

namespace spdld::engine {

// Everything between the encoded bytes of a clip and its row in the batch, run as one task on one
// core: each frame goes to its place in the row while its pixels are in the cache.
class VideoTask final : public FieldTask {
 public:
  const DecodeVideoOp* decode = nullptr;
  std::size_t request = 0;  // the plan's, which brings its bytes
  std::vector<GeometryStep> geometry;
  std::uint64_t largest_known_pair = 0;  // known_bytes()
  PixelFormat format;
  ClipShape clip;
  std::optional<Size> output;  // of each frame; none: clips may differ

  // The frames, and then, where the op names fields for them, their times and durations.
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  std::unique_ptr<FieldWorker> make_worker() const override;
  std::int64_t max_pixels() const override { return decode->max_pixels(); }
  std::uint64_t known_bytes() const override { return largest_known_pair; }
  std::span<const GeometryStep> steps() const override { return geometry; }
  // Called once, when all else is set. `sizes` is what the source's index tells of frames.
  void set_tensors(const std::string& name, const PictureSizes& sizes);

  StoredFormat stored() const { return {.channels = decode->channels()}; }
  // Frames of a row, repeated clips included.
  std::size_t frames() const;
  // The shape of a row whose frames have this size.
  std::vector<std::int64_t> shape_of(Size size) const;
  // Where frame `i` of a row goes, which begins at `row` and whose frames have this size.
  transform::ImageTarget target_of(std::byte* row, std::size_t i, Size size) const;

 private:
  std::vector<std::int64_t> leading_shape() const;
  // As a setting has it: a row of the largest pictures that the source's index has.
  std::string ample_row() const;

  std::vector<TensorSpec> tensors_;
};

// The chain that decode_video begins.
class VideoChain final : public PixelChain {
 public:
  VideoChain(const DecodeVideoOp& op, std::size_t request, const ClipShape& clip);

  std::string_view noun() const override { return "videos"; }
  Result<std::unique_ptr<FieldTask>> finish(const std::string& name) override {
    return finish_task(std::move(task_), name, [this] { return indexed_; });
  }

 private:
  std::unique_ptr<VideoTask> task_ = std::make_unique<VideoTask>();
  PictureSizes indexed_;  // of the frames that are decoded, by the source's index
};

}  // namespace spdld::engine
