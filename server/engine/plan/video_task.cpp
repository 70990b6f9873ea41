// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/video_task.h"

#include <algorithm>
#include <utility>

#include "engine/plan/video_worker.h"

namespace spdld::engine {

std::unique_ptr<FieldWorker> VideoTask::make_worker() const {
  return std::make_unique<VideoWorker>(*this);
}

std::size_t VideoTask::frames() const {
  return static_cast<std::size_t>(clip.frames * std::max<std::int64_t>(clip.repeats, 1));
}

std::vector<std::int64_t> VideoTask::leading_shape() const {
  std::vector<std::int64_t> shape;
  if (clip.repeats > 0) shape.push_back(clip.repeats);
  return shape;
}

std::vector<std::int64_t> VideoTask::shape_of(Size size) const {
  std::vector<std::int64_t> shape = leading_shape();
  const std::int64_t channels = decode->channels();
  switch (decode->layout()) {
    case VideoLayout::kTchw:
      shape.insert(shape.end(), {clip.frames, channels, size.height, size.width});
      break;
    case VideoLayout::kCthw:
      shape.insert(shape.end(), {channels, clip.frames, size.height, size.width});
      break;
    case VideoLayout::kThwc:
      shape.insert(shape.end(), {clip.frames, size.height, size.width, channels});
      break;
  }
  return shape;
}

transform::ImageTarget VideoTask::target_of(std::byte* row, std::size_t i, Size size) const {
  const std::size_t plane =
      static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
  const auto channels = static_cast<std::size_t>(decode->channels());
  const auto count = static_cast<std::size_t>(clip.frames);
  const std::size_t value_bytes = wire::dtype_bytes(format.dtype);
  transform::ImageTarget target{.format = format, .layout = Layout::kNCHW};
  std::size_t values = i * channels * plane;
  if (decode->layout() == VideoLayout::kThwc) target.layout = Layout::kNHWC;
  if (decode->layout() == VideoLayout::kCthw) {
    values = (i / count * channels * count + i % count) * plane;
    target.plane_pixels = count * plane;
  }
  target.data = row + values * value_bytes;
  return target;
}

std::string VideoTask::ample_row() const {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  std::uint64_t bytes = wire::dtype_bytes(format.dtype);
  for (const std::int64_t extent : shape_of({clip.max_width, clip.max_height}))
    bytes *= static_cast<std::uint64_t>(extent);
  return std::to_string(std::max<std::uint64_t>(4, (bytes + kMiB - 1) / kMiB)) + "MiB";
}

void VideoTask::set_tensors(const std::string& name, const PictureSizes& sizes) {
  tensors_.push_back(tensor_of_pictures(*this, name, sizes, "clips", ample_row()));
  for (const std::string* const times : {&decode->pts_field(), &decode->duration_field()}) {
    if (times->empty()) continue;
    std::vector<std::int64_t> shape = leading_shape();
    shape.push_back(clip.frames);
    tensors_.push_back({.name = *times, .dtype = DType::kFloat64, .shape = std::move(shape)});
  }
}

VideoChain::VideoChain(const DecodeVideoOp& op, std::size_t request, const ClipShape& clip)
    : PixelChain(op.channels(), DType::kUInt8) {
  task_->decode = &op;
  task_->request = request;
  task_->clip = clip;
  indexed_.differing = clip.sizes;
  if (clip.width > 0 && clip.height > 0) indexed_.one = Size{clip.width, clip.height};
}

}  // namespace spdld::engine
