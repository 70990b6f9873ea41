// SPDX-License-Identifier: Apache-2.0
#include "engine/image_worker.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/rng.h"

namespace spdld::engine {
namespace {

class RowCopier final : public RowSink {
 public:
  RowCopier(std::byte* pixels, std::size_t row_bytes) : pixels_(pixels), row_bytes_(row_bytes) {}

  void row(int y, const std::uint8_t* pixels) override {
    std::memcpy(pixels_ + static_cast<std::size_t>(y) * row_bytes_, pixels, row_bytes_);
  }

 private:
  std::byte* pixels_;
  std::size_t row_bytes_;
};

}  // namespace

ImageWorker::ImageWorker(const ImageTask& task)
    : task_(task), decoder_(task.decode->make_decoder()) {}

Result<std::uint64_t> ImageWorker::run(SampleInput& sample, std::span<RowOutput> out,
                                       std::uint64_t room_bytes) {
  return run(sample.part(task_.request), sample, out, room_bytes);
}

Result<std::uint64_t> ImageWorker::run(std::span<const std::byte> bytes, SampleInput& sample,
                                       std::span<RowOutput> out, std::uint64_t room_bytes) {
  pixels_ = {};
  SPDLD_ASSIGN(const Size size, decoder_->open(bytes));
  return apply(size, decoder_->read_bytes(), sample, out.front(), room_bytes);
}

Result<std::uint64_t> ImageWorker::run(const ImageView& pixels, SampleInput& sample,
                                       std::span<RowOutput> out, std::uint64_t room_bytes) {
  SPDLD_CHECK(pixels.channels == task_.decode->channels() &&
              pixels.bytes_per_value == task_.bytes_per_value());
  pixels_ = pixels;
  const bool is_own = reinterpret_cast<const std::byte*>(pixels.data) == whole_.data();
  return apply({pixels.width, pixels.height}, is_own ? whole_taken_ : 0, sample, out.front(),
               room_bytes);
}

Result<ImageView> ImageWorker::decode(std::span<const std::byte> bytes, std::uint64_t max_bytes,
                                      std::uint64_t room_bytes, std::uint64_t& needs_bytes) {
  SPDLD_ASSIGN(const Size size, decoder_->open(bytes));
  const std::size_t row_bytes =
      static_cast<std::size_t>(size.width) * static_cast<std::size_t>(task_.pixel_bytes());
  const std::size_t all_bytes = row_bytes * static_cast<std::size_t>(size.height);
  const std::uint64_t taken = decoder_->read_bytes() + all_bytes * 5 / 4;  // as ByteBuffer grows
  if (all_bytes > max_bytes) return ImageView{};
  if (taken > room_bytes) {
    needs_bytes = taken;
    return ImageView{};
  }
  kept_bytes_ = std::max(kept_bytes_, taken);
  whole_taken_ = taken;
  RowCopier rows(whole_.resize(all_bytes), row_bytes);
  SPDLD_TRY(decoder_->read({0, 0, size.width, size.height}, rows));
  return task_.packed(reinterpret_cast<const std::uint8_t*>(whole_.data()), size);
}

Result<std::uint64_t> ImageWorker::apply(Size size, std::uint64_t decode_bytes, SampleInput& sample,
                                         RowOutput& out, std::uint64_t room_bytes) {
  SPDLD_TRY(check_canvas(size, sample));
  SPDLD_ASSIGN(std::uint64_t taken, plan_chains(size, sample.key));
  taken += decode_bytes;
  if (taken > room_bytes) return taken;
  kept_bytes_ = std::max(kept_bytes_, taken);
  for (std::size_t i = 0; i + 1 < chains_.size(); ++i) SPDLD_TRY(materialize(chains_[i]));
  const Geometry& last = chains_.back();
  std::byte* row = out.data();
  if (task_.output) {
    SPDLD_CHECK(last.output() == *task_.output);  // the slot has room for this and no more
  } else {
    SPDLD_ASSIGN(row, out.resize(task_.shape_of(last.output())));
  }
  SPDLD_TRY(execute(last, {.data = row, .format = task_.format, .layout = task_.layout}));
  return 0;
}

Status ImageWorker::check_canvas(Size size, SampleInput& sample) const {
  if (task_.is_canvas) sample.canvas = size;
  Size& leader = sample.leaders[task_.leader];
  if (!task_.follows) leader = size;
  if (size == leader) return {};
  const auto text = [](Size of) {
    return std::to_string(of.width) + "x" + std::to_string(of.height);
  };
  return {Code::kDataLoss, "its field '" + task_.tensors().front().name + "' has " + text(size) +
                               " pixels, and the image that it belongs to " + text(leader) +
                               ": what shares crops and flips must be of one size"};
}

Geometry ImageWorker::begin_chain(Size size) const {
  Geometry chain = Geometry::identity(size);
  chain.nearest_only = task_.decode->is_index();
  return chain;
}

Result<std::uint64_t> ImageWorker::plan_chains(Size size, std::uint64_t sample_key) {
  std::uint64_t bytes = 0;
  chains_.clear();
  Geometry chain = begin_chain(size);
  for (const GeometryStep& step : task_.geometry) {
    const KeyedRng rng(mix64(sample_key, step.draw_key));
    SPDLD_ASSIGN(const bool fits, step.op->append_to(chain, rng));
    if (fits) continue;
    bytes += transform::ImagePass::most_bytes(chain, task_.pixel_bytes()) +
             static_cast<std::uint64_t>(chain.output().width) *
                 static_cast<std::uint64_t>(chain.output().height) *
                 static_cast<std::uint64_t>(task_.pixel_bytes());
    chains_.push_back(chain);
    chain = begin_chain(chain.output());
    SPDLD_ASSIGN(const bool fits_now, step.op->append_to(chain, rng));
    SPDLD_CHECK(fits_now);
  }
  chains_.push_back(chain);
  return bytes + transform::ImagePass::most_bytes(chain, task_.pixel_bytes());
}

Status ImageWorker::materialize(const Geometry& chain) {
  const Size size = chain.output();
  back_.resize(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) *
               static_cast<std::size_t>(task_.pixel_bytes()));
  SPDLD_TRY(execute(chain, {.data = reinterpret_cast<std::byte*>(back_.data()),
                            .format = {.dtype = task_.decode->dtype()},
                            .layout = Layout::kNHWC}));
  std::swap(front_, back_);
  pixels_ = task_.packed(front_.data(), size);
  return {};
}

Status ImageWorker::execute(const Geometry& chain, const transform::ImageTarget& target) {
  const Rect region = pass_.begin(chain, task_.decode->channels(), target, task_.bytes_per_value());
  if (region.width == 0 || region.height == 0) {
    // The window lies beside the image: nothing but padding.
  } else if (pixels_.data == nullptr) {
    SPDLD_TRY(decoder_->read(region, pass_));
  } else {
    const std::ptrdiff_t left = static_cast<std::ptrdiff_t>(region.x) * pixels_.pixel_bytes();
    for (int y = 0; y < region.height; ++y) pass_.row(y, pixels_.row(region.y + y) + left);
  }
  pass_.finish();
  return {};
}

}  // namespace spdld::engine
