// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "transform/image/image_pass.h"

namespace spdld::transform {

struct TestImage {
  int width = 0;
  int height = 0;
  int channels = 0;
  std::vector<std::uint8_t> pixels;

  std::uint8_t& at(int x, int y, int c) {
    return pixels[static_cast<std::size_t>((y * width + x) * channels + c)];
  }
  std::uint8_t at(int x, int y, int c) const {
    return pixels[static_cast<std::size_t>((y * width + x) * channels + c)];
  }
  Size size() const { return {width, height}; }
};

inline TestImage blank(int width, int height, int channels) {
  return {width, height, channels,
          std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * channels))};
}

inline TestImage noise(int width, int height, int channels, std::uint64_t seed = 1) {
  TestImage image = blank(width, height, channels);
  KeyedRng rng(seed);
  for (std::uint8_t& pixel : image.pixels) pixel = static_cast<std::uint8_t>(rng.next());
  return image;
}

inline Geometry resized(Size from, Size to, Interpolation interpolation = Interpolation::kBilinear,
                        bool antialias = true) {
  Geometry geometry = Geometry::identity(from);
  EXPECT_TRUE(geometry.append_resize(to, interpolation, antialias));
  return geometry;
}

// Runs the pass as an engine does, with every row in memory of its own that ends with the row, and
// checks that nothing beside the target is written.
inline std::vector<std::byte> run_bytes(ImagePass& pass, const TestImage& image,
                                        const Geometry& geometry, const PixelFormat& format,
                                        Layout layout) {
  constexpr std::size_t kGuard = 64;
  constexpr std::byte kUntouched{0xa5};
  const Size out = geometry.output();
  const std::size_t bytes = static_cast<std::size_t>(out.width * out.height * image.channels) *
                            wire::dtype_bytes(format.dtype);
  std::vector<std::byte> guarded(bytes + 2 * kGuard, kUntouched);
  const Rect region =
      pass.begin(geometry, image.channels, {guarded.data() + kGuard, format, layout});
  const auto row_bytes = static_cast<std::size_t>(region.width * image.channels);
  for (int y = 0; y < region.height; ++y) {
    const auto row = std::make_unique<std::uint8_t[]>(row_bytes);
    const std::ptrdiff_t from = ((region.y + y) * image.width + region.x) * image.channels;
    std::copy_n(image.pixels.begin() + from, row_bytes, row.get());
    pass.row(y, row.get());
  }
  pass.finish();
  const auto end = static_cast<std::ptrdiff_t>(kGuard + bytes);
  EXPECT_TRUE(std::all_of(guarded.begin(), guarded.begin() + kGuard,
                          [&](std::byte b) { return b == kUntouched; }));
  EXPECT_TRUE(std::all_of(guarded.begin() + end, guarded.end(),
                          [&](std::byte b) { return b == kUntouched; }));
  return {guarded.begin() + kGuard, guarded.begin() + end};
}

inline TestImage run(ImagePass& pass, const TestImage& image, const Geometry& geometry) {
  const std::vector<std::byte> bytes = run_bytes(pass, image, geometry, {}, Layout::kNHWC);
  TestImage out = blank(geometry.output().width, geometry.output().height, image.channels);
  std::transform(bytes.begin(), bytes.end(), out.pixels.begin(),
                 [](std::byte b) { return static_cast<std::uint8_t>(b); });
  return out;
}

inline TestImage run(const TestImage& image, const Geometry& geometry) {
  ImagePass pass;
  return run(pass, image, geometry);
}

inline TestImage cut(const TestImage& image, const Rect& rect) {
  TestImage out = blank(rect.width, rect.height, image.channels);
  for (int y = 0; y < rect.height; ++y) {
    for (int x = 0; x < rect.width; ++x) {
      const int from_x = rect.x + x;
      const int from_y = rect.y + y;
      if (from_x < 0 || from_x >= image.width || from_y < 0 || from_y >= image.height) continue;
      for (int c = 0; c < image.channels; ++c) out.at(x, y, c) = image.at(from_x, from_y, c);
    }
  }
  return out;
}

inline TestImage mirrored(const TestImage& image) {
  TestImage out = blank(image.width, image.height, image.channels);
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      for (int c = 0; c < image.channels; ++c) {
        out.at(image.width - 1 - x, y, c) = image.at(x, y, c);
      }
    }
  }
  return out;
}

}  // namespace spdld::transform
