// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/jpeg_decoder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

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

}  // namespace

Result<RasterInfo> JpegDecoder::open(std::span<const std::byte> bytes) {
  file_ = bytes;
  baseline_ = find_baseline();
  return baseline_ && baseline_->index ? open_baseline() : open_by_libjpeg();
}

std::optional<JpegDecoder::Baseline> JpegDecoder::find_baseline() const {
  constexpr int kAlpha = 4;
  if (options_.indexes == nullptr || mode_.channels == kAlpha) return std::nullopt;
  const std::optional<BaselineFrame> frame = read_baseline_frame(file_);
  if (!frame) return std::nullopt;
  const SeekIndexes::Key key = options_.indexes->key_of(file_);
  const SeekIndexes::Known known =
      options_.indexes->find(key, frame->mcus_across(), frame->mcus_down());
  if (known.is_odd) return std::nullopt;
  return Baseline{*frame, key, known.index};
}

// These very bytes were found whole and sound when their index was made.
Result<RasterInfo> JpegDecoder::open_baseline() {
  const BaselineFrame& frame = baseline_->frame;
  SPDLD_TRY(limits_.check_scans(1));
  SPDLD_TRY(limits_.check_pixels(static_cast<std::uint32_t>(frame.size.width),
                                 static_cast<std::uint32_t>(frame.size.height)));
  read_bytes_ = baseline_bytes();
  return raster_info(frame, exif_orientation(frame.exif));
}

Result<RasterInfo> JpegDecoder::open_by_libjpeg() {
  const std::span<const std::byte> bytes = file_;
  SPDLD_ASSIGN(const JpegMarkers markers, survey_jpeg(bytes));
  SPDLD_TRY(limits_.check_scans(markers.scans));
  bool many_scans = false;
  if (!codec_.begin(bytes) || !codec_.attempt([&many_scans](jpeg_decompress_struct& info) {
        jpeg_read_header(&info, TRUE);
        many_scans = jpeg_has_multiple_scans(&info) != FALSE;
      })) {
    return tl::unexpected<Status>(codec_.failure());
  }
  SPDLD_TRY(check_header(bytes.size()));
  read_bytes_ = bytes_to_read(many_scans) + (baseline_ ? baseline_bytes() : 0);
  const jpeg_decompress_struct& info = codec_.info();
  StoredPixels stored;
  if (info.num_components == 1) stored.color = StoredPixels::Color::kGray;
  if (info.num_components == 4) stored.color = StoredPixels::Color::kCmyk;
  return RasterInfo{{static_cast<int>(info.image_width), static_cast<int>(info.image_height)},
                    Orientation::from_exif(exif_orientation(markers.exif)),
                    stored};
}

Status JpegDecoder::read_header() {
  const Result<RasterInfo> info = open_by_libjpeg();
  return info ? Status() : info.error();
}

Status JpegDecoder::check_header(std::size_t file_bytes) const {
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
std::uint64_t JpegDecoder::bytes_to_read(bool many_scans) const {
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

std::uint64_t JpegDecoder::baseline_bytes() const {
  return BaselineDecoder::most_scan_bytes(baseline_->frame, file_.size()) +
         BaselineDecoder::most_bytes(baseline_->frame) + compared_bytes();
}

std::uint64_t JpegDecoder::compared_bytes() const {
  if (options_.verify_one_in == 0) return 0;
  const Size size = baseline_->frame.size;
  return row_bytes(size.width) * static_cast<std::uint64_t>(size.height);
}

J_COLOR_SPACE JpegDecoder::output_space(int components) const {
  if (components == 4) return JCS_CMYK;
  if (mode_.channels <= 2) return JCS_GRAYSCALE;
  return mode_.channels == 3 ? JCS_RGB : JCS_EXT_RGBA;
}

RowConverter JpegDecoder::converter(int components) const {
  DecodedRows rows;
  switch (output_space(components)) {
    case JCS_CMYK:
      rows.kind = DecodedRows::Kind::kInvertedCmyk;
      rows.samples = {.step = 4, .green = 1, .blue = 2, .alpha = 3};
      break;
    case JCS_GRAYSCALE: rows.samples = {.step = 1}; break;
    case JCS_RGB: rows.samples = {.step = 3, .green = 1, .blue = 2}; break;
    default: rows.samples = {.step = 4, .green = 1, .blue = 2, .alpha = 3};
  }
  return {mode_, rows};
}

Status JpegDecoder::read(const Rect& region, RowSink& rows) {
  RowGiver giver(
      converter(baseline_ ? baseline_->frame.component_count : codec_.info().num_components),
      region.width, converted_, rows);
  if (!baseline_) return read_by_libjpeg(region, 0, giver);
  if (is_to_verify()) return read_verified(region, giver);
  const bool has_header = !baseline_->index;
  const int given = read_baseline(region, giver);
  if (given == region.height) {
    codec_.abort();
    return {};
  }
  baseline_.reset();
  if (!has_header) SPDLD_TRY(read_header());
  return read_by_libjpeg(region, given, giver);
}

bool JpegDecoder::is_to_verify() {
  return options_.verify_one_in > 0 && options_.indexes->is_to_compare(options_.verify_one_in);
}

// Keeps rows, and gives others on that should be the same.
class JpegDecoder::Comparison final : public RowSink {
 public:
  // `rows`: null, and they are compared alone.
  Comparison(std::size_t row_bytes, int height, RowSink* rows)
      : row_bytes_(row_bytes), rows_(rows) {
    kept_.reserve(row_bytes * static_cast<std::size_t>(height));
  }
  void row(int y, const std::uint8_t* pixels) override {
    if (!compares_) {
      kept_.insert(kept_.end(), pixels, pixels + row_bytes_);
      return;
    }
    const std::size_t at = static_cast<std::size_t>(y) * row_bytes_;
    differs_ |= at < kept_.size() && std::memcmp(kept_.data() + at, pixels, row_bytes_) != 0;
    if (rows_ != nullptr) rows_->row(y, pixels);
  }
  void compare() { compares_ = true; }
  bool differs() const { return differs_; }

 private:
  const std::size_t row_bytes_;
  RowSink* const rows_;
  std::vector<std::uint8_t> kept_;
  bool compares_ = false;
  bool differs_ = false;
};

Status JpegDecoder::read_verified(const Rect& region, RowSink& rows) {
  const SeekIndexes::Key key = baseline_->key;
  const bool has_header = !baseline_->index;
  Comparison comparison(row_bytes(region.width), region.height, &rows);
  const int given = read_baseline(region, comparison);
  comparison.compare();
  baseline_.reset();
  if (!has_header) SPDLD_TRY(read_header());
  const Status status = read_by_libjpeg(region, 0, comparison);
  const bool has_all = given == region.height;
  // Where all rows were given, libjpeg-turbo finds nothing wrong either.
  const bool are_same = !comparison.differs() && (status.ok() || !has_all);
  if (has_all || !are_same) options_.indexes->compared(key, are_same);
  return status;
}

std::size_t JpegDecoder::row_bytes(int width) const {
  const DecodedRows rows = BaselineDecoder::rows_of(BaselineDecoder::output_for(mode_));
  return static_cast<std::size_t>(width) * static_cast<std::size_t>(rows.samples.step);
}

std::uint64_t JpegDecoder::recode_bytes() const {
  if (!baseline_) return 0;
  const BaselineFrame& frame = baseline_->frame;
  const std::uint64_t most = CoefficientWriter::most_bytes(frame, file_.size());
  if (most > CoefficientWriter::kMostBytes) return 0;
  return read_bytes_ + ByteBuffer::grown(most);
}

std::span<const std::byte> JpegDecoder::recode() {
  codec_.abort();
  if (recode_bytes() == 0) return {};
  const Baseline file = *std::exchange(baseline_, std::nullopt);
  decoder_.open(file.frame, file_, BaselineDecoder::output_for(mode_));
  writer_.begin(file.frame, file_.size(), exif_orientation(file.frame.exif));
  if (!decoder_.copy(writer_)) {
    options_.indexes->add_odd(file.key);
    return {};
  }
  options_.count(JpegWay::kRecoded);
  const std::span<const std::byte> recoded = writer_.end();
  if (!is_to_verify()) return recoded;
  const bool are_same = is_same(file.frame, recoded);
  options_.indexes->compared(file.key, are_same);
  return are_same ? recoded : std::span<const std::byte>();
}

bool JpegDecoder::is_same(const BaselineFrame& frame, std::span<const std::byte> recoded) {
  const std::optional<CoefficientImage> image = CoefficientImage::parse(recoded);
  if (!image) return false;
  const Rect whole{0, 0, frame.size.width, frame.size.height};
  Comparison comparison(row_bytes(whole.width), whole.height, nullptr);
  decoder_.open(*image, BaselineDecoder::output_for(mode_));
  if (decoder_.read(*image, whole, comparison) < whole.height) return false;
  comparison.compare();
  return read_header().ok() && read_by_libjpeg(whole, 0, comparison).ok() && !comparison.differs();
}

int JpegDecoder::read_baseline(const Rect& region, RowSink& rows) {
  const Baseline& file = *baseline_;
  decoder_.open(file.frame, file_, BaselineDecoder::output_for(mode_));
  if (file.index) {
    const int given = decoder_.read(*file.index, region, rows);
    if (given < region.height) {
      options_.indexes->contradicted(file.key);
    } else {
      options_.count(JpegWay::kByIndex);
    }
    return given;
  }
  const std::optional<SeekGrid> grid =
      options_.indexes->grid_for(file.frame.mcus_across(), file.frame.mcus_down());
  std::span<const std::uint64_t> entries;
  const int given = decoder_.read_first(grid ? &*grid : nullptr, region, rows, entries);
  if (!entries.empty()) {
    options_.indexes->add(file.key, *grid, entries);
  } else if (grid || given < region.height) {
    options_.indexes->add_odd(file.key);
  }
  if (given == region.height) options_.count(JpegWay::kFromBegin);
  return given;
}

Status JpegDecoder::read_by_libjpeg(const Rect& region, int given, RowSink& rows) {
  options_.count(JpegWay::kByLibjpeg);
  const auto width = static_cast<std::size_t>(codec_.info().image_width);
  rows_.resize(bytes_for_rows(
      width * static_cast<std::size_t>(converter(codec_.info().num_components).step())));
  const bool done = codec_.attempt([&](jpeg_decompress_struct& info) {
    info.out_color_space = output_space(info.num_components);
    jpeg_start_decompress(&info);
    read_rows(info, region, given, rows);
  });
  Status status = done ? Status() : codec_.failure();
  codec_.abort();
  return status;
}

// Runs inside attempt(): holds nothing with a destructor.
void JpegDecoder::read_rows(jpeg_decompress_struct& info, const Rect& region, int given,
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
