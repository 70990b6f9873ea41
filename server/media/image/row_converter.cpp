// SPDX-License-Identifier: Apache-2.0
#include "media/image/row_converter.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "media/image/pixels.h"

namespace spdld::media {
namespace {

constexpr bool kBigEndianHost = std::endian::native == std::endian::big;

struct Pixel {
  unsigned red;
  unsigned green;
  unsigned blue;
  unsigned alpha;
};

template <int kBytes, bool kBig>
unsigned sample_at(const std::uint8_t* at) {
  if constexpr (kBytes == 1) return at[0];
  return kBig ? at[0] * 256U + at[1] : at[1] * 256U + at[0];
}

// Each reader says how many bytes its samples have and gives one pixel of a row.
template <int kSampleBytes, bool kBig>
class SampleReader {
 public:
  static constexpr int kBytes = kSampleBytes;
  explicit SampleReader(const DecodedRows& rows) : layout_(rows.samples), key_(rows.key) {}

  Pixel at(const std::uint8_t* row, int x) const {
    const std::uint8_t* at = row + static_cast<std::ptrdiff_t>(x) * layout_.step;
    Pixel pixel{sample_at<kBytes, kBig>(at + layout_.red),
                sample_at<kBytes, kBig>(at + layout_.green),
                sample_at<kBytes, kBig>(at + layout_.blue), kBytes == 1 ? 255U : 65535U};
    if (layout_.alpha >= 0) pixel.alpha = sample_at<kBytes, kBig>(at + layout_.alpha);
    if (key_ && pixel.red == (*key_)[0] && pixel.green == (*key_)[1] && pixel.blue == (*key_)[2])
      pixel.alpha = 0;
    return pixel;
  }

 private:
  SampleLayout layout_;
  std::optional<std::array<std::uint16_t, 3>> key_;
};

class PaletteReader {
 public:
  static constexpr int kBytes = 1;
  explicit PaletteReader(const DecodedRows& rows) : palette_(*rows.palette) {}

  Pixel at(const std::uint8_t* row, int x) const {
    const PaletteColor& color = palette_[row[x]];
    return {color.red, color.green, color.blue, color.alpha};
  }

 private:
  const Palette& palette_;
};

// Of samples of 16 bits the high byte.
template <bool kInverted, int kSampleBytes, bool kBig>
class CmykReader {
 public:
  static constexpr int kBytes = 1;
  explicit CmykReader(const DecodedRows& rows) : layout_(rows.samples) {}

  Pixel at(const std::uint8_t* row, int x) const {
    const std::uint8_t* at = row + static_cast<std::ptrdiff_t>(x) * layout_.step;
    const unsigned key = light(at + layout_.alpha);  // how much the black ink leaves
    return {key - multiply_255(255U - light(at + layout_.red), key),
            key - multiply_255(255U - light(at + layout_.green), key),
            key - multiply_255(255U - light(at + layout_.blue), key), 255U};
  }

 private:
  static unsigned light(const std::uint8_t* at) {
    unsigned value = sample_at<kSampleBytes, kBig>(at);
    if constexpr (kSampleBytes == 2) value >>= 8;
    return kInverted ? value : 255U - value;
  }

  SampleLayout layout_;
};

// A value of kFrom bytes as one of kTo: the high byte, or as much of the larger range.
template <int kFrom, int kTo>
constexpr unsigned as_bytes(unsigned value) {
  if constexpr (kFrom == kTo) return value;
  return kFrom > kTo ? value >> 8 : value * 257;
}

template <int kBytes>
void put(unsigned value, std::uint8_t* out) {
  if constexpr (kBytes == 1) {
    *out = static_cast<std::uint8_t>(value);
  } else {
    const auto wide = static_cast<std::uint16_t>(value);
    std::memcpy(out, &wide, sizeof(wide));
  }
}

template <class Reader, int kChannels, int kBytes>
void convert_pixels(const RowConverter& converter, const std::uint8_t* row, int width,
                    std::uint8_t* out) {
  const Reader reader(converter.rows());
  constexpr bool kGray = kChannels <= 2;
  constexpr bool kAlpha = kChannels % 2 == 0;
  const auto value = [](unsigned sample) { return as_bytes<Reader::kBytes, kBytes>(sample); };
  for (int x = 0; x < width; ++x, out += kChannels * kBytes) {
    const Pixel pixel = reader.at(row, x);
    const unsigned red = value(pixel.red);
    if constexpr (kGray) {
      // luma() of three equal samples is that sample; of 16 bits there are no others.
      put<kBytes>(kBytes == 1 ? luma(red, value(pixel.green), value(pixel.blue)) : red, out);
    } else {
      put<kBytes>(red, out);
      put<kBytes>(value(pixel.green), out + kBytes);
      put<kBytes>(value(pixel.blue), out + 2 * kBytes);
    }
    if constexpr (kAlpha) put<kBytes>(value(pixel.alpha), out + (kChannels - 1) * kBytes);
  }
}

using Convert = void (*)(const RowConverter&, const std::uint8_t*, int, std::uint8_t*);

template <class Reader>
Convert convert_by(const ImageMode& mode) {
  if (mode.bytes_per_value == 1) {
    switch (mode.channels) {
      case 1: return convert_pixels<Reader, 1, 1>;
      case 2: return convert_pixels<Reader, 2, 1>;
      case 3: return convert_pixels<Reader, 3, 1>;
      default: return convert_pixels<Reader, 4, 1>;
    }
  }
  switch (mode.channels) {
    case 1: return convert_pixels<Reader, 1, 2>;
    case 2: return convert_pixels<Reader, 2, 2>;
    case 3: return convert_pixels<Reader, 3, 2>;
    default: return convert_pixels<Reader, 4, 2>;
  }
}

template <bool kInverted>
Convert convert_cmyk(const ImageMode& mode, const SampleLayout& samples) {
  if (samples.bytes == 1) return convert_by<CmykReader<kInverted, 1, false>>(mode);
  if (samples.big_endian) return convert_by<CmykReader<kInverted, 2, true>>(mode);
  return convert_by<CmykReader<kInverted, 2, false>>(mode);
}

Convert convert_samples(const ImageMode& mode, const SampleLayout& samples) {
  if (samples.bytes == 1) return convert_by<SampleReader<1, false>>(mode);
  if (samples.big_endian) return convert_by<SampleReader<2, true>>(mode);
  return convert_by<SampleReader<2, false>>(mode);
}

// The numbers of gray of up to 8 bits.
void convert_numbers(const RowConverter& converter, const std::uint8_t* row, int width,
                     std::uint8_t* out) {
  const int step = converter.step();
  const int stretch = converter.rows().stretch;
  for (int x = 0; x < width; ++x, row += step) *out++ = static_cast<std::uint8_t>(*row / stretch);
}

// The same of a palette or of gray of up to 16 bits, as numbers of two bytes.
void convert_wide_numbers(const RowConverter& converter, const std::uint8_t* row, int width,
                          std::uint8_t* out) {
  const int step = converter.step();
  const DecodedRows& rows = converter.rows();
  const bool wide = rows.kind == DecodedRows::Kind::kSamples && rows.samples.bytes == 2;
  for (int x = 0; x < width; ++x, row += step, out += sizeof(std::uint16_t)) {
    const unsigned stored = !wide                     ? row[0]
                            : rows.samples.big_endian ? sample_at<2, true>(row)
                                                      : sample_at<2, false>(row);
    const auto number = static_cast<std::uint16_t>(stored / static_cast<unsigned>(rows.stretch));
    std::memcpy(out, &number, sizeof number);
  }
}

bool lies_as(const SampleLayout& samples, const ImageMode& mode) {
  if (samples.bytes != mode.bytes_per_value || samples.step != mode.pixel_bytes() ||
      (samples.bytes == 2 && samples.big_endian != kBigEndianHost))
    return false;
  const int colors = mode.channels <= 2 ? 1 : 3;
  const int last = (colors - 1) * samples.bytes;
  if (samples.red != 0 || samples.green != last / 2 || samples.blue != last) return false;
  return !mode.has_alpha() || samples.alpha == colors * samples.bytes;
}

}  // namespace

Palette gray_palette(int bits) {
  SPDLD_CHECK(bits >= 1 && bits <= 8);
  Palette palette;
  const int most = (1 << bits) - 1;
  for (int i = 0; i <= most; ++i) {
    const auto gray = static_cast<std::uint8_t>(i * 255 / most);
    palette[static_cast<std::size_t>(i)] = {gray, gray, gray};
  }
  return palette;
}

RowConverter::RowConverter(const ImageMode& mode, const DecodedRows& rows)
    : mode_(mode), rows_(rows) {
  if (!mode.has_alpha()) rows_.key.reset();
  if (mode.color == ColorMode::kIndex) {
    const bool numbers = rows.kind == DecodedRows::Kind::kNumbers;
    if (mode.bytes_per_value == 2) {
      if (numbers || rows.stretch > 1 || !lies_as(rows.samples, mode))
        convert_ = convert_wide_numbers;
      return;
    }
    if (!numbers && (rows.stretch > 1 || rows.samples.step > 1)) convert_ = convert_numbers;
    return;
  }
  switch (rows.kind) {
    case DecodedRows::Kind::kNumbers: convert_ = convert_by<PaletteReader>(mode); break;
    case DecodedRows::Kind::kCmyk: convert_ = convert_cmyk<false>(mode, rows.samples); break;
    case DecodedRows::Kind::kInvertedCmyk: convert_ = convert_cmyk<true>(mode, rows.samples); break;
    case DecodedRows::Kind::kSamples:
      if (!lies_as(rows.samples, mode) || rows_.key) convert_ = convert_samples(mode, rows.samples);
      break;
  }
}

RowGiver::RowGiver(const RowConverter& converter, int width, ByteBuffer& scratch, RowSink& sink)
    : converter_(converter), width_(width), sink_(sink) {
  if (converter.as_is()) return;
  scratch_ = reinterpret_cast<std::uint8_t*>(scratch.resize(
      static_cast<std::size_t>(width) * static_cast<std::size_t>(converter.mode().pixel_bytes())));
}

void give_rows(const RowConverter& converter, const std::uint8_t* data, std::ptrdiff_t stride,
               const Rect& region, ByteBuffer& scratch, RowSink& sink) {
  RowGiver giver(converter, region.width, scratch, sink);
  data += region.y * stride + static_cast<std::ptrdiff_t>(region.x) * converter.step();
  for (int y = 0; y < region.height; ++y, data += stride) giver.row(y, data);
}

void unpack_numbers(const std::uint8_t* row, int from, int count, int bits, std::uint8_t* out) {
  SPDLD_CHECK(bits == 1 || bits == 2 || bits == 4);
  const int in_byte = 8 / bits;
  const int mask = (1 << bits) - 1;
  for (int i = from; i < from + count; ++i) {
    const int shift = 8 - bits * (i % in_byte + 1);
    *out++ = static_cast<std::uint8_t>(row[i / in_byte] >> shift & mask);
  }
}

}  // namespace spdld::media
