// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/libjpeg_reader.h"

#include <algorithm>
#include <array>
#include <string>

#include "media/image/exif.h"
#include "media/jpeg_scan/jpeg_markers.h"

namespace spdld::media {
namespace {

// How many rows libjpeg is asked for at once; it makes no more than its largest vertical sampling
// factor.
constexpr int kRowsAtOnce = 4;

// Rows begin beside a 32-byte boundary: on one, libjpeg's SIMD colour conversion stores past the
// cache, which costs time there and again where the row is read.
constexpr std::size_t kRowAlignment = 64;
constexpr std::size_t kRowOffset = 16;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

std::size_t bytes_for_rows(std::size_t row_bytes) {
  return aligned(row_bytes + kRowOffset) * kRowsAtOnce + kRowAlignment;
}

// Where rows of this length lie in a buffer of bytes_for_rows().
std::array<JSAMPROW, kRowsAtOnce> rows_in(ByteBuffer& buffer, std::size_t row_bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
  auto* row = reinterpret_cast<JSAMPROW>(buffer.data()) + (aligned(address) - address) + kRowOffset;
  std::array<JSAMPROW, kRowsAtOnce> rows{};
  for (JSAMPROW& each : rows) {
    each = row;
    row += aligned(row_bytes + kRowOffset);
  }
  return rows;
}

// Half-open.
struct Columns {
  int first = 0;
  int end = 0;
};

// Which columns libjpeg must decode for [region.x, region.x + region.width) to come out as in a
// full decode. Its triangle filter takes a chroma sample's neighbours on both sides and repeats the
// last one at an edge, so that the outermost column of a cropped decode differs from a full one's;
// and it takes another filter for a crop less than two samples wide. Two more columns on either
// side, cut off afterwards, avoid both.
Columns columns_for(const Rect& region, const jpeg_decompress_struct& info) {
  const int margin = info.max_h_samp_factor > 1 ? 2 : 0;
  return {std::max(0, region.x - margin),
          std::min(static_cast<int>(info.output_width), region.x + region.width + margin)};
}

// Whether libjpeg smooths over blocks whose progression is incomplete. That draws on a wide
// neighbourhood, which its cropping and skipping do not keep, so the whole is decoded then.
bool smooths_blocks(const jpeg_decompress_struct& info) {
  if (!info.progressive_mode || info.coef_bits == nullptr) return false;
  constexpr int kSmoothed = 10;  // the first coefficients, DC apart, are those it may make up
  for (int component = 0; component < info.num_components; ++component) {
    const int* bits = info.coef_bits[component];
    if (std::any_of(bits + 1, bits + kSmoothed, [](int left) { return left != 0; })) return true;
  }
  return false;
}

J_COLOR_SPACE output_space(const ImageMode& mode, int components) {
  if (components == 4) return JCS_CMYK;
  if (mode.channels <= 2) return JCS_GRAYSCALE;
  return mode.channels == 3 ? JCS_RGB : JCS_EXT_RGBA;
}

}  // namespace

DecodedRows LibjpegReader::rows_of(const ImageMode& mode, int components) {
  DecodedRows rows;
  switch (output_space(mode, components)) {
    case JCS_CMYK:
      rows.kind = DecodedRows::Kind::kInvertedCmyk;
      rows.samples = {.step = 4, .green = 1, .blue = 2, .alpha = 3};
      break;
    case JCS_GRAYSCALE: rows.samples = {.step = 1}; break;
    case JCS_RGB: rows.samples = {.step = 3, .green = 1, .blue = 2}; break;
    default: rows.samples = {.step = 4, .green = 1, .blue = 2, .alpha = 3};
  }
  return rows;
}

Result<RasterInfo> LibjpegReader::open(std::span<const std::byte> file) {
  SPDLD_ASSIGN(const JpegMarkers markers, survey_jpeg(file));
  SPDLD_TRY(limits_.check_scans(markers.scans));
  bool many_scans = false;
  if (!codec_.begin(file) || !codec_.attempt([&many_scans](jpeg_decompress_struct& info) {
        jpeg_read_header(&info, TRUE);
        many_scans = jpeg_has_multiple_scans(&info) != FALSE;
      })) {
    return tl::unexpected<Status>(codec_.failure());
  }
  SPDLD_TRY(check_header(file.size()));
  read_bytes_ = bytes_to_read(many_scans);
  const jpeg_decompress_struct& info = codec_.info();
  StoredPixels stored;
  if (info.num_components == 1) stored.color = StoredPixels::Color::kGray;
  if (info.num_components == 4) stored.color = StoredPixels::Color::kCmyk;
  return RasterInfo{{static_cast<int>(info.image_width), static_cast<int>(info.image_height)},
                    Orientation::from_exif(exif_orientation(markers.exif)),
                    stored};
}

Status LibjpegReader::check_header(std::size_t file_bytes) const {
  const jpeg_decompress_struct& info = codec_.info();
  SPDLD_TRY(limits_.check_pixels(info.image_width, info.image_height));
  if (info.num_components != 1 && info.num_components != 3 && info.num_components != 4) {
    return {Code::kInvalidArgument, "unsupported JPEG: " + std::to_string(info.num_components) +
                                        " components; 1, 3 and 4 are read"};
  }
  // A Huffman code is a bit at least, and every block has one: a small file cannot make us take
  // memory for a large image.
  std::uint64_t blocks = 0;
  for (int i = 0; i < info.num_components; ++i) {
    const jpeg_component_info& component = info.comp_info[i];
    blocks = std::max(blocks, std::uint64_t{component.width_in_blocks} *
                                  std::uint64_t{component.height_in_blocks});
  }
  if (!info.arith_code && blocks > std::uint64_t{file_bytes} * 8) {
    return {Code::kDataLoss, "corrupt JPEG: " + std::to_string(file_bytes) +
                                 " bytes cannot hold the " + std::to_string(info.image_width) +
                                 "x" + std::to_string(info.image_height) +
                                 " pixels that its header claims"};
  }
  return {};
}

// A baseline file in one scan is decoded a row of blocks at a time. Of all others libjpeg keeps
// every coefficient (jdcoefct.c), two bytes each: 3 bytes a pixel for 4:2:0, 6 for 4:4:4, 8 for
// CMYK.
std::uint64_t LibjpegReader::bytes_to_read(bool many_scans) const {
  const jpeg_decompress_struct& info = codec_.info();
  // Rows of samples on their way through upsampling and colour conversion (jdmainct.c, jdsample.c)
  // and ours: at most 64 of them.
  std::uint64_t bytes =
      std::uint64_t{info.image_width} * 64 * static_cast<std::uint64_t>(info.num_components);
  if (!many_scans) return bytes;
  const auto round_up = [](std::uint64_t value, int multiple) {
    const auto step = static_cast<std::uint64_t>(multiple);
    return (value + step - 1) / step * step;
  };
  for (int i = 0; i < info.num_components; ++i) {
    const jpeg_component_info& component = info.comp_info[i];
    bytes += round_up(component.width_in_blocks, component.h_samp_factor) *
             round_up(component.height_in_blocks, component.v_samp_factor) * sizeof(JBLOCK);
  }
  return bytes;
}

Status LibjpegReader::read(const Rect& region, int given, RowSink& rows) {
  options_.count(JpegWay::kByLibjpeg);
  const auto width = static_cast<std::size_t>(codec_.info().image_width);
  rows_.resize(
      bytes_for_rows(width * static_cast<std::size_t>(rows_of(mode_, components()).samples.step)));
  const bool done = codec_.attempt([&](jpeg_decompress_struct& info) {
    info.out_color_space = output_space(mode_, info.num_components);
    jpeg_start_decompress(&info);
    read_rows(info, region, given, rows);
  });
  Status status = done ? Status() : codec_.failure();
  codec_.abort();
  return status;
}

// Runs inside attempt(): holds nothing with a destructor.
void LibjpegReader::read_rows(jpeg_decompress_struct& info, const Rect& region, int given,
                              RowSink& rows) {
  JDIMENSION left = 0;
  if (!smooths_blocks(info)) {
    const Columns columns = columns_for(region, info);
    left = static_cast<JDIMENSION>(columns.first);
    JDIMENSION width = static_cast<JDIMENSION>(columns.end - columns.first);
    jpeg_crop_scanline(&info, &left, &width);  // moves `left` to where a block begins
    if (region.y > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(region.y));
  }
  const std::size_t row_bytes =
      std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components);
  const std::size_t cut_bytes = static_cast<std::size_t>(region.x - static_cast<int>(left)) *
                                static_cast<std::size_t>(info.output_components);
  std::array<JSAMPROW, kRowsAtOnce> pixels = rows_in(rows_, row_bytes);
  int y = static_cast<int>(info.output_scanline) - region.y;
  while (y < region.height) {
    const auto made = static_cast<int>(jpeg_read_scanlines(
        &info, pixels.data(), static_cast<JDIMENSION>(std::min(kRowsAtOnce, region.height - y))));
    for (int i = 0; i < made; ++i, ++y) {
      if (y >= given) rows.row(y, pixels[i] + cut_bytes);
    }
  }
}

}  // namespace spdld::media
