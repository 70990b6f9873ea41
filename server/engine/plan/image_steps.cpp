// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/image_steps.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "op/op.h"

namespace spdld::engine {
namespace {

// Rows on their way to a pass, which is given none from the moment on that the sample is dropped.
class WantedRows final : public RowSink {
 public:
  WantedRows(transform::ImagePass& pass, const SampleInput& sample)
      : pass_(pass), sample_(sample) {}

  void row(int y, const std::uint8_t* pixels) override {
    if (sample_.is_dropped()) return;
    const DecodeTimer::Pause pause(sample_.decoding);
    pass_.row(y, pixels);
  }

 private:
  transform::ImagePass& pass_;
  const SampleInput& sample_;
};

}  // namespace

std::uint64_t picture_bytes(Size size, int pixel_bytes) {
  return static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height) *
         static_cast<std::uint64_t>(pixel_bytes);
}

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
  std::uint64_t largest_pair = 0;
  std::uint64_t last = 0;  // of the picture that was made last
  std::uint64_t passes = 0;
  const auto make = [&](const Geometry& chain, std::uint64_t made_bytes) {
    passes += transform::ImagePass::most_bytes(chain, format_.pixel_bytes());
    largest_pair = std::max(largest_pair, last + made_bytes);
    last = made_bytes;
  };
  chains_.clear();
  Geometry chain = begin_chain(size);
  for (const GeometryStep& step : steps_) {
    const KeyedRng rng(mix64(sample_key, step.draw_key));
    SPDLD_ASSIGN(const bool fits, step.op->append_to(chain, rng));
    if (fits) continue;
    make(chain, ByteBuffer::grown(picture_bytes(chain.output(), format_.pixel_bytes())));
    chains_.push_back(chain);
    chain = begin_chain(chain.output());
    SPDLD_ASSIGN(const bool fits_now, step.op->append_to(chain, rng));
    SPDLD_CHECK(fits_now);
  }
  chains_.push_back(chain);
  make(chain, 0);
  return largest_pair + passes;
}

Status ImageSteps::run(RegionReader& picture, const SampleInput& sample,
                       const transform::ImageTarget& target) {
  ViewReader made{ImageView{}};
  RegionReader* from = &picture;
  for (std::size_t i = 0; i + 1 < chains_.size(); ++i) {
    const Size size = chains_[i].output();
    const std::uint64_t bytes = picture_bytes(size, format_.pixel_bytes());
    ByteBuffer& pixels = made_[i % 2];
    // Of three pictures in a row, no more is held than the pair that plan() has counted.
    if (i >= 2) pixels.shrink(ByteBuffer::grown(bytes));
    SPDLD_TRY(execute(chains_[i], *from, sample,
                      {.data = pixels.resize(bytes),
                       .format = {.dtype = format_.dtype},
                       .layout = Layout::kNHWC}));
    made = ViewReader(
        packed_view(format_, reinterpret_cast<const std::uint8_t*>(pixels.data()), size));
    from = &made;
  }
  return execute(chains_.back(), *from, sample, target);
}

Status ImageSteps::execute(const Geometry& chain, RegionReader& picture, const SampleInput& sample,
                           const transform::ImageTarget& target) {
  const Rect region = pass_.begin(chain, format_.channels, target, format_.bytes_per_value());
  // Where the window lies beside the image, there is nothing but padding.
  if (region.width > 0 && region.height > 0) {
    WantedRows rows(pass_, sample);
    SPDLD_TRY(sample.decode([&] { return picture.read(region, rows); }));
    SPDLD_TRY(sample.check_wanted());  // or the pass lacks rows
  }
  pass_.finish();
  return {};
}

}  // namespace spdld::engine
