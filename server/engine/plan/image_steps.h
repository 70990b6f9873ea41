// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "op/field_task.h"
#include "op/geometry.h"
#include "op/image.h"
#include "op/tensor_spec.h"
#include "transform/image/image_pass.h"

namespace spdld::engine {

// The form of pictures before a field's ops move them.
struct StoredFormat {
  int channels = 3;
  DType dtype = DType::kUInt8;
  bool is_index = false;  // numbers of classes

  int bytes_per_value() const { return static_cast<int>(wire::dtype_bytes(dtype)); }
  int pixel_bytes() const { return channels * bytes_per_value(); }
};

// The pixels of a picture of this size.
std::uint64_t picture_bytes(Size size, int pixel_bytes);
// A picture of this format whose rows lie one behind the other.
ImageView packed_view(const StoredFormat& format, const std::uint8_t* data, Size size);

// Takes pictures through a field's ops on geometry, with what one sample draws: plan() once, then
// run() for each picture of the sample. One worker's; it keeps scratch.
class ImageSteps {
 public:
  // `steps` outlives this.
  ImageSteps(std::span<const GeometryStep> steps, const StoredFormat& format)
      : steps_(steps), format_(format) {}

  // Draws what is done to pictures of this size. Returns the memory that run() takes: the largest
  // pair of a picture and what is made of it, and what the passes over them need.
  Result<std::uint64_t> plan(Size size, std::uint64_t sample_key);

  // The pictures that come out have this size.
  Size output() const { return chains_.back().output(); }

  // Takes `picture` of the sample into the target. An error is the picture's, or the sample was
  // dropped.
  Status run(RegionReader& picture, const SampleInput& sample,
             const transform::ImageTarget& target);

 private:
  Geometry begin_chain(Size size) const;
  Status execute(const Geometry& chain, RegionReader& picture, const SampleInput& sample,
                 const transform::ImageTarget& target);

  std::span<const GeometryStep> steps_;
  const StoredFormat format_;
  transform::ImagePass pass_;
  // All but the last are made into pixels, in turn in one of the two.
  std::vector<Geometry> chains_;
  std::array<ByteBuffer, 2> made_;
};

// Reads a picture that lies in memory.
class ViewReader final : public RegionReader {
 public:
  explicit ViewReader(const ImageView& view) : view_(view) {}
  Status read(const Rect& region, RowSink& rows) override;

 private:
  ImageView view_;
};

}  // namespace spdld::engine
