// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/picture_shape.h"

#include "ctl/show/pixel_values.h"

namespace spdld::ctl {
namespace {

constexpr std::int64_t kMaxSide = 16'384;
constexpr std::uint32_t kMostChannels = 4;

enum class Order { kChannelsLast, kFramesFirst, kChannelsFirst };

PictureShape shape_of(std::uint32_t frames, std::uint32_t height, std::uint32_t width,
                      std::uint32_t channels, Order order) {
  const std::size_t pixels = std::size_t{height} * width;
  PictureShape shape{.frames = frames,
                     .height = height,
                     .width = width,
                     .channels = channels,
                     .frame_stride = pixels * channels,
                     .y_stride = width,
                     .x_stride = 1,
                     .channel_stride = pixels};
  if (order == Order::kChannelsLast) {
    shape.y_stride = std::size_t{width} * channels;
    shape.x_stride = channels;
    shape.channel_stride = 1;
  } else if (order == Order::kChannelsFirst) {
    shape.frame_stride = pixels;
    shape.channel_stride = pixels * frames;
  }
  return shape;
}

}  // namespace

std::optional<PictureShape> picture_shape(const v1::Tensor& tensor) {
  const int rank = tensor.shape_size();
  if (tensor.kind() != "dense" || rank < 3 || rank > 5 || value_bytes(tensor.dtype()) == 0)
    return std::nullopt;
  for (const std::int64_t extent : tensor.shape()) {
    if (extent < 1 || extent > kMaxSide) return std::nullopt;
  }
  const auto extent = [&](int i) { return static_cast<std::uint32_t>(tensor.shape(i)); };
  const auto is_channels = [&](int i) { return extent(i) <= kMostChannels; };
  // Last first: an image of up to 4 pixels' height is rarer than one in NHWC.
  if (rank == 3) {
    if (is_channels(2)) return shape_of(1, extent(0), extent(1), extent(2), Order::kChannelsLast);
    if (is_channels(0)) return shape_of(1, extent(1), extent(2), extent(0), Order::kFramesFirst);
    return std::nullopt;
  }
  const int t = rank - 4;  // behind the number of clips
  const std::uint32_t clips = t == 1 ? extent(0) : 1;
  if (clips > kMaxSide / extent(t)) return std::nullopt;
  const std::uint32_t frames = clips * extent(t);
  if (is_channels(t + 3))
    return shape_of(frames, extent(t + 1), extent(t + 2), extent(t + 3), Order::kChannelsLast);
  if (is_channels(t + 1))
    return shape_of(frames, extent(t + 2), extent(t + 3), extent(t + 1), Order::kFramesFirst);
  if (clips == 1 && is_channels(t))
    return shape_of(extent(t + 1), extent(t + 2), extent(t + 3), extent(t), Order::kChannelsFirst);
  return std::nullopt;
}

bool may_be_mask(const v1::Tensor& tensor) {
  const std::optional<PictureShape> shape = picture_shape(tensor);
  return shape && shape->frames == 1 && shape->channels == 1 && tensor.dtype() == "uint8";
}

}  // namespace spdld::ctl
