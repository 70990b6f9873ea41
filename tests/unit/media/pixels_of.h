// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "media/decode_image.h"

namespace spdld::media::test {

using Bytes = std::vector<std::byte>;

struct Picture {
  int width = 0;
  int height = 0;
  int channels = 0;
  std::vector<std::uint8_t> pixels;

  const std::uint8_t* at(int x, int y) const {
    return pixels.data() + (static_cast<std::size_t>(y) * width + x) * channels;
  }
  std::uint8_t* at(int x, int y) {
    return pixels.data() + (static_cast<std::size_t>(y) * width + x) * channels;
  }
  Picture cut(const Rect& region) const {
    Picture part{region.width, region.height, channels, {}};
    for (int y = 0; y < region.height; ++y) {
      const std::uint8_t* from = at(region.x, region.y + y);
      part.pixels.insert(part.pixels.end(), from, from + region.width * channels);
    }
    return part;
  }
  friend bool operator==(const Picture&, const Picture&) = default;
};

inline Rect drawn_region(Size size, KeyedRng& rng) {
  const auto below = [&rng](int bound) {
    return static_cast<int>(rng.below(static_cast<std::uint64_t>(bound)));
  };
  Rect region{below(size.width), below(size.height), 0, 0};
  region.width = 1 + below(size.width - region.x);
  region.height = 1 + below(size.height - region.y);
  return region;
}

// Keeps what a decoder gives, and sees that rows come once each and in order.
class PictureSink final : public RowSink {
 public:
  PictureSink(const Rect& region, int channels)
      : picture_{region.width, 0, channels, {}}, height_(region.height) {}

  void row(int y, const std::uint8_t* pixels) override {
    EXPECT_EQ(y, picture_.height);
    EXPECT_LT(y, height_);
    ++picture_.height;
    picture_.pixels.insert(picture_.pixels.end(), pixels,
                           pixels + static_cast<std::size_t>(picture_.width) * picture_.channels);
  }
  Picture take() { return std::move(picture_); }

 private:
  Picture picture_;
  int height_;
};

inline Result<Picture> read_region(ImageDecoder& decoder, const Bytes& bytes, const Rect& region,
                                   int channels = 3) {
  SPDLD_ASSIGN([[maybe_unused]] const Size size, decoder.open(bytes));
  PictureSink sink(region, channels);
  SPDLD_TRY(decoder.read(region, sink));
  return sink.take();
}

inline Result<Picture> read_whole(ImageDecoder& decoder, const Bytes& bytes, int channels = 3) {
  SPDLD_ASSIGN(const Size size, decoder.open(bytes));
  const Rect all{0, 0, size.width, size.height};
  PictureSink sink(all, channels);
  SPDLD_TRY(decoder.read(all, sink));
  return sink.take();
}

// As a daemon reads JPEG: what one test has decoded, another finds the index of.
inline JpegOptions with_indexes() {
  static const auto indexes = std::make_shared<SeekIndexes>(std::uint64_t{64} << 20);
  return {.indexes = indexes};
}

inline std::unique_ptr<ImageDecoder> make_decoder(ColorMode mode = ColorMode::kRgb,
                                                  bool exif = true, ImageLimits limits = {}) {
  return DecodeImage(ImageMode::of(mode), exif, limits, with_indexes()).make_decoder();
}

inline std::unique_ptr<ImageDecoder> decoder_of(const ImageMode& mode, bool exif = true) {
  return DecodeImage(mode, exif, {}, with_indexes()).make_decoder();
}

// The whole image in a mode, its pixels as bytes: two a value of 16 bits.
inline Result<Picture> read_as(const ImageMode& mode, const Bytes& bytes) {
  return read_whole(*decoder_of(mode), bytes, mode.pixel_bytes());
}

// The failure of an open() or of the read() after it; fails the test when both succeed.
inline Status failure_of(const Bytes& bytes, ImageLimits limits = {},
                         ColorMode mode = ColorMode::kRgb) {
  const Result<Picture> picture =
      read_whole(*make_decoder(mode, true, limits), bytes, ImageMode::of(mode).channels);
  EXPECT_FALSE(picture.has_value());
  return picture ? Status() : picture.error();
}

}  // namespace spdld::media::test
