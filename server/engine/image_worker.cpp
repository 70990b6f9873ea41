// SPDX-License-Identifier: Apache-2.0
#include "engine/image_worker.h"

#include "base/check.h"
#include "base/rng.h"

namespace spdld::engine {

ImageWorker::ImageWorker(const ImageTask& task)
    : task_(task), decoder_(task.decode->make_decoder()) {}

Status ImageWorker::run(std::span<const std::byte> bytes, std::uint64_t sample_key,
                        std::byte* row) {
  pixels_ = {};
  SPDLD_ASSIGN(const Size size, decoder_->open(bytes));
  Geometry chain = Geometry::identity(size);
  for (const GeometryStep& step : task_.geometry) {
    const KeyedRng rng(mix64(sample_key, step.draw_key));
    SPDLD_ASSIGN(const bool fits, step.op->append_to(chain, rng));
    if (fits) continue;
    SPDLD_TRY(materialize(chain));
    chain = Geometry::identity({pixels_.width, pixels_.height});
    SPDLD_ASSIGN(const bool fits_now, step.op->append_to(chain, rng));
    SPDLD_CHECK(fits_now);
  }
  SPDLD_CHECK(chain.output() == task_.output);  // the slot has room for this and no more
  return execute(chain, {.data = row, .format = task_.format, .layout = task_.layout});
}

Status ImageWorker::materialize(const Geometry& chain) {
  const Size size = chain.output();
  const int channels = task_.decode->channels();
  const std::size_t stride =
      static_cast<std::size_t>(size.width) * static_cast<std::size_t>(channels);
  back_.resize(stride * static_cast<std::size_t>(size.height));
  SPDLD_TRY(execute(
      chain,
      {.data = reinterpret_cast<std::byte*>(back_.data()), .format = {}, .layout = Layout::kNHWC}));
  std::swap(front_, back_);
  pixels_ = {.data = front_.data(),
             .width = size.width,
             .height = size.height,
             .channels = channels,
             .stride_bytes = static_cast<std::ptrdiff_t>(stride)};
  return {};
}

Status ImageWorker::execute(const Geometry& chain, const transform::ImageTarget& target) {
  const Rect region = pass_.begin(chain, task_.decode->channels(), target);
  if (region.width == 0 || region.height == 0) {
    // The window lies beside the image: nothing but padding.
  } else if (pixels_.data == nullptr) {
    SPDLD_TRY(decoder_->read(region, pass_));
  } else {
    const std::ptrdiff_t left = static_cast<std::ptrdiff_t>(region.x) * pixels_.channels;
    for (int y = 0; y < region.height; ++y) pass_.row(y, pixels_.row(region.y + y) + left);
  }
  pass_.finish();
  return {};
}

}  // namespace spdld::engine
