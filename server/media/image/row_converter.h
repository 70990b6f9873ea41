// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/memory/byte_buffer.h"
#include "media/image/image_mode.h"
#include "op/image.h"

namespace spdld::media {

// Where the samples of a pixel lie in a row that a decoder made: at these offsets in bytes. Gray is
// one sample that is red, green and blue at once.
struct SampleLayout {
  int step = 0;  // bytes from one pixel to the next
  int red = 0;
  int green = 0;
  int blue = 0;
  int alpha = -1;  // none; of CMYK: the black ink
  int bytes = 1;   // of a sample
  bool big_endian = true;
};

struct PaletteColor {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  std::uint8_t alpha = 255;
};
using Palette = std::array<PaletteColor, 256>;

// Grays from black to white for numbers of so many bits.
Palette gray_palette(int bits);

// How the rows of an image come out of a decoder.
struct DecodedRows {
  enum class Kind : std::uint8_t {
    kSamples,
    kNumbers,       // of the palette, a byte each
    kCmyk,          // ink: 0 is none
    kInvertedCmyk,  // as Adobe stores it in JPEGs: 255 is none
  };
  Kind kind = Kind::kSamples;
  SampleLayout samples = {};
  const Palette* palette = nullptr;
  std::optional<std::array<std::uint16_t, 3>> key = {};  // samples that are transparent
  int stretch = 1;  // gray of 8 bits is the file's number so many times
};

// Brings rows into a mode's pixels. Samples of 16 bits keep their high byte in a mode of 8 bits,
// those of 8 are 257 times as large in one of 16, and gray of a colour is its luma. A value; the
// palette must outlive it.
class RowConverter {
 public:
  RowConverter() = default;
  RowConverter(const ImageMode& mode, const DecodedRows& rows);

  // Whether the mode's pixels are the decoder's, byte for byte.
  bool as_is() const { return convert_ == nullptr; }
  // The first `width` pixels of `row`. Not if as_is().
  void convert(const std::uint8_t* row, int width, std::uint8_t* out) const {
    convert_(*this, row, width, out);
  }
  // From one of the decoder's pixels to the next.
  int step() const { return rows_.kind == DecodedRows::Kind::kNumbers ? 1 : rows_.samples.step; }
  const ImageMode& mode() const { return mode_; }
  const DecodedRows& rows() const { return rows_; }

 private:
  using Convert = void (*)(const RowConverter&, const std::uint8_t*, int, std::uint8_t*);

  ImageMode mode_;
  DecodedRows rows_;
  Convert convert_ = nullptr;
};

// Gives a region's rows to a sink in a mode's pixels, one by one. Lives while one image is read;
// `scratch` is for one row.
class RowGiver final : public RowSink {
 public:
  RowGiver(const RowConverter& converter, int width, ByteBuffer& scratch, RowSink& sink);

  // `pixels` begins with the region's first one.
  void row(int y, const std::uint8_t* pixels) override {
    if (scratch_ != nullptr) {
      converter_.convert(pixels, width_, scratch_);
      pixels = scratch_;
    }
    sink_.row(y, pixels);
  }

 private:
  const RowConverter converter_;
  const int width_;
  std::uint8_t* scratch_ = nullptr;  // none: the decoder's pixels are the mode's
  RowSink& sink_;
};

// Gives `region` of the image whose row y begins at data + y * stride.
void give_rows(const RowConverter& converter, const std::uint8_t* data, std::ptrdiff_t stride,
               const Rect& region, ByteBuffer& scratch, RowSink& sink);

// The first `count` numbers of `bits` (1, 2, 4) bits from number `from` of the row on, the first
// one in a byte's highest bits, to a byte each.
void unpack_numbers(const std::uint8_t* row, int from, int count, int bits, std::uint8_t* out);

}  // namespace spdld::media
