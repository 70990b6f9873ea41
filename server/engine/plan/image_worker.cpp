// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/image_worker.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "engine/plan/picture_row.h"
#include "op/row_collector.h"

namespace spdld::engine {

ImageWorker::ImageWorker(const ImageTask& task)
    : task_(task),
      decoder_(task.decode != nullptr ? task.decode->make_decoder() : nullptr),
      steps_(task.geometry, task.stored) {}

Result<std::uint64_t> ImageWorker::run(SampleInput& sample, std::span<RowOutput> out,
                                       std::uint64_t room_bytes) {
  if (decoder_ != nullptr) return run(sample.part(task_.request), sample, out, room_bytes);
  SPDLD_ASSIGN(const ImageView pixels, given(sample));
  return run(pixels, sample, out, room_bytes);
}

Result<ImageView> ImageWorker::given(const SampleInput& sample) const {
  const PackedRow* const row = sample.array(*task_.given);
  SPDLD_CHECK(row != nullptr);
  if (row->view.empty())
    return error(Code::kDataLoss, "its field '" + task_.tensors().front().name +
                                      "' came back from 'python' without pixels");
  return task_.packed(reinterpret_cast<const std::uint8_t*>(row->view.data()),
                      {static_cast<int>(row->shape[1]), static_cast<int>(row->shape[0])});
}

Result<std::uint64_t> ImageWorker::run(std::span<const std::byte> bytes, SampleInput& sample,
                                       std::span<RowOutput> out, std::uint64_t room_bytes) {
  SPDLD_ASSIGN(const Size size, sample.decode([&] { return decoder_->open(bytes); }));
  return apply(size, *decoder_, decoder_->read_bytes(), sample, out.front(), room_bytes);
}

Result<std::uint64_t> ImageWorker::run(const ImageView& pixels, SampleInput& sample,
                                       std::span<RowOutput> out, std::uint64_t room_bytes) {
  SPDLD_CHECK(pixels.channels == task_.stored.channels &&
              pixels.bytes_per_value == task_.stored.bytes_per_value());
  ViewReader picture(pixels);
  const bool is_own = reinterpret_cast<const std::byte*>(pixels.data) == whole_.data();
  return apply({pixels.width, pixels.height}, picture, is_own ? whole_taken_ : 0, sample,
               out.front(), room_bytes);
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
  auto* const pixels = reinterpret_cast<std::uint8_t*>(whole_.resize(all_bytes));
  RowCollector rows(pixels, row_bytes);
  SPDLD_TRY(decoder_->read({0, 0, size.width, size.height}, rows));
  return task_.packed(pixels, size);
}

Result<ImageWorker::Recoded> ImageWorker::recode(std::span<const std::byte> bytes,
                                                 std::uint64_t room_bytes,
                                                 std::uint64_t& needs_bytes) {
  SPDLD_ASSIGN(const Size size, decoder_->open(bytes));
  const std::uint64_t taken = decoder_->recode_bytes();
  if (taken == 0) return Recoded{};
  if (taken > room_bytes) {
    needs_bytes = taken;
    return Recoded{};
  }
  kept_bytes_ = std::max(kept_bytes_, taken);
  recoded_taken_ = taken;
  recoded_ = decoder_->recode();
  return Recoded{size, recoded_};
}

Result<std::uint64_t> ImageWorker::run_recoded(const Recoded& recoded, SampleInput& sample,
                                               std::span<RowOutput> out, std::uint64_t room_bytes) {
  SPDLD_ASSIGN(const Size size,
               sample.decode([&] { return decoder_->open_recoded(recoded.bytes); }));
  if (size != recoded.size)
    return tl::unexpected<Status>(
        Status(Code::kDataLoss, "the coefficients that a cache has kept of it are damaged"));
  const std::uint64_t own_bytes = recoded.bytes.data() == recoded_.data() ? recoded_taken_ : 0;
  return apply(size, *decoder_, decoder_->read_bytes() + own_bytes, sample, out.front(),
               room_bytes);
}

Result<std::uint64_t> ImageWorker::apply(Size size, RegionReader& picture,
                                         std::uint64_t decode_bytes, SampleInput& sample,
                                         RowOutput& out, std::uint64_t room_bytes) {
  SPDLD_TRY(check_canvas(size, sample));
  SPDLD_ASSIGN(std::uint64_t taken, steps_.plan(size, sample.key));
  taken += decode_bytes;
  SPDLD_ASSIGN(const PictureRow row, begin_row(task_, steps_.output(), taken, room_bytes, out));
  if (row.data == nullptr) return row.needs_bytes;
  kept_bytes_ = std::max(kept_bytes_, taken);
  SPDLD_TRY(steps_.run(picture, sample,
                       {.data = row.data, .format = task_.format, .layout = task_.layout}));
  return 0;
}

Status ImageWorker::check_canvas(Size size, SampleInput& sample) const {
  if (task_.is_canvas) sample.canvas = size;
  Size& leader = sample.leaders[task_.leader];
  // Where the row lacks the leader, the first one that it has takes its place.
  if (!task_.follows || leader == Size{}) leader = size;
  if (size == leader) return {};
  const auto text = [](Size of) {
    return std::to_string(of.width) + "x" + std::to_string(of.height);
  };
  return {Code::kDataLoss, "its field '" + task_.tensors().front().name + "' has " + text(size) +
                               " pixels, and the image that it belongs to " + text(leader) +
                               ": what shares crops and flips must be of one size"};
}

}  // namespace spdld::engine
