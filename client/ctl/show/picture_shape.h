// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdld/v1/control.pb.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace spdld::ctl {

// How the pictures of a row lie in a tensor: an image is one frame, a clip has several.
struct PictureShape {
  std::uint32_t frames = 1;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  // Values from one to the next.
  std::size_t frame_stride = 0;
  std::size_t y_stride = 0;
  std::size_t x_stride = 0;
  std::size_t channel_stride = 0;

  std::size_t values() const { return std::size_t{frames} * height * width * channels; }
  // Which channel a picture's red, green or blue shows; alpha, the last of 2 or 4, is not shown.
  std::uint32_t channel_of(std::uint32_t color) const { return channels < 3 ? 0 : color; }
  std::size_t at(std::uint32_t frame, std::uint32_t y, std::uint32_t x,
                 std::uint32_t channel) const {
    return frame * frame_stride + y * y_stride + x * x_stride + channel * channel_stride;
  }
};

// Of a dense tensor that may be images, [H, W, C] or [C, H, W], or clips, [T, H, W, C],
// [T, C, H, W] or [C, T, H, W], where C is 1 to 4; several clips of one row follow each other.
std::optional<PictureShape> picture_shape(const v1::Tensor& tensor);

// The tensor has numbers of classes, or gray images.
bool may_be_mask(const v1::Tensor& tensor);

}  // namespace spdld::ctl
