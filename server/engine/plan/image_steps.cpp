// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/image_steps.h"

#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "op/op.h"

namespace spdld::engine {

ImageView packed_view(const StoredFormat& format, const std::uint8_t* data, Size size) {
  return {.data = data,
          .width = size.width,
          .height = size.height,
          .channels = format.channels,
          .stride_bytes = std::ptrdiff_t{size.width} * format.pixel_bytes(),
          .bytes_per_value = format.bytes_per_value()};
}

Status ViewReader::read(const Rect& region, RowSink& rows) {
  const std::ptrdiff_t left = static_cast<std::ptrdiff_t>(region.x) * view_.pixel_bytes();
  for (int y = 0; y < region.height; ++y) rows.row(y, view_.row(region.y + y) + left);
  return {};
}

Geometry ImageSteps::begin_chain(Size size) const {
  Geometry chain = Geometry::identity(size);
  chain.nearest_only = format_.is_index;
  return chain;
}

Result<std::uint64_t> ImageSteps::plan(Size size, std::uint64_t sample_key) {
  std::uint64_t bytes = 0;
  chains_.clear();
  Geometry chain = begin_chain(size);
  const int pixel_bytes = format_.pixel_bytes();
  for (const GeometryStep& step : steps_) {
    const KeyedRng rng(mix64(sample_key, step.draw_key));
    SPDLD_ASSIGN(const bool fits, step.op->append_to(chain, rng));
    if (fits) continue;
    bytes += transform::ImagePass::most_bytes(chain, pixel_bytes) +
             static_cast<std::uint64_t>(chain.output().width) *
                 static_cast<std::uint64_t>(chain.output().height) *
                 static_cast<std::uint64_t>(pixel_bytes);
    chains_.push_back(chain);
    chain = begin_chain(chain.output());
    SPDLD_ASSIGN(const bool fits_now, step.op->append_to(chain, rng));
    SPDLD_CHECK(fits_now);
  }
  chains_.push_back(chain);
  return bytes + transform::ImagePass::most_bytes(chain, pixel_bytes);
}

Status ImageSteps::run(RegionReader& picture, const transform::ImageTarget& target) {
  ViewReader made{ImageView{}};
  RegionReader* from = &picture;
  for (std::size_t i = 0; i + 1 < chains_.size(); ++i) {
    const Size size = chains_[i].output();
    back_.resize(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) *
                 static_cast<std::size_t>(format_.pixel_bytes()));
    SPDLD_TRY(execute(chains_[i], *from,
                      {.data = reinterpret_cast<std::byte*>(back_.data()),
                       .format = {.dtype = format_.dtype},
                       .layout = Layout::kNHWC}));
    std::swap(front_, back_);
    made = ViewReader(packed_view(format_, front_.data(), size));
    from = &made;
  }
  return execute(chains_.back(), *from, target);
}

Status ImageSteps::execute(const Geometry& chain, RegionReader& picture,
                           const transform::ImageTarget& target) {
  const Rect region = pass_.begin(chain, format_.channels, target, format_.bytes_per_value());
  // Where the window lies beside the image, there is nothing but padding.
  if (region.width > 0 && region.height > 0) SPDLD_TRY(picture.read(region, pass_));
  pass_.finish();
  return {};
}

}  // namespace spdld::engine
