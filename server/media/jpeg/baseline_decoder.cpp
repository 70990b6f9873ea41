// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/baseline_decoder.h"

#include <algorithm>
#include <cstring>

namespace spdld::media {
namespace {

// Before a line: the sample at the image's edge is repeated there, and kernels read a little more.
constexpr std::size_t kLead = 64;

int ceil_div(int value, int by) { return (value + by - 1) / by; }

}  // namespace

RasterInfo raster_info(const BaselineFrame& frame, int exif_orientation) {
  StoredPixels stored;
  if (frame.component_count == 1) stored.color = StoredPixels::Color::kGray;
  return {frame.size, Orientation::from_exif(exif_orientation), stored};
}

BaselineDecoder::Output BaselineDecoder::output_for(const ImageMode& mode) {
  return mode.channels <= 2 ? Output::kGray : Output::kRgb;
}

DecodedRows BaselineDecoder::rows_of(Output output) {
  if (output == Output::kGray) return {.samples = {.step = 1}};
  return {.samples = {.step = 3, .green = 1, .blue = 2}};
}

std::uint64_t BaselineDecoder::most_bytes(const BaselineFrame& frame) {
  const auto blocks = static_cast<std::uint64_t>(frame.mcus_across()) *
                      static_cast<std::uint64_t>(frame.mcu_blocks());
  return kBlock * (IndexedScan::most_blocks(blocks) * sizeof(std::int16_t) + blocks * kKeptRows);
}

std::uint64_t BaselineDecoder::most_scan_bytes(const BaselineFrame& frame, std::uint64_t bytes) {
  const auto mcus = static_cast<std::uint64_t>(frame.mcus_across()) *
                    static_cast<std::uint64_t>(frame.mcus_down());
  // A region's is read by the index that a survey of the whole has made.
  return ScanSurvey::is_available()
             ? 2 * ScanBytes::most_bytes(bytes) + ScanSurvey::most_bytes(mcus)
             : ScanBytes::most_bytes(bytes);
}

std::uint8_t* BaselineDecoder::Plane::line(int y) {
  const int row = y / mcu_height % kKeptRows * mcu_height + y % mcu_height;
  return samples.data() + kLead + row * stride - origin;
}

void BaselineDecoder::open(const BaselineFrame& frame, std::span<const std::byte> file,
                           Output output) {
  open_planes(frame, output);
  scan_ = file.subspan(frame.scan);
  tables_.build(frame);
}

void BaselineDecoder::open(const CoefficientImage& image, Output output) {
  open_planes(image.frame(), output);
}

void BaselineDecoder::open_planes(const BaselineFrame& frame, Output output) {
  frame_ = frame;
  output_ = output;
  for (std::size_t i = 0; i < static_cast<std::size_t>(frame.component_count); ++i) {
    Plane& plane = planes_[i];
    const BaselineFrame::Component& component = frame.components[i];
    plane.mcu_width = 8 * component.columns;
    plane.mcu_height = 8 * component.rows;
    plane.width = ceil_div(frame.size.width * component.columns, frame.components[0].columns);
    plane.height = ceil_div(frame.size.height * component.rows, frame.components[0].rows);
    for (std::size_t k = 0; k < plane.multipliers.size(); ++k)
      plane.multipliers[k] = static_cast<std::int16_t>(component.quantizer[kNaturalToZigzag[k]]);
  }
}

// With the chroma samples beside the region's, which its outermost pixels draw upon.
McuSpan BaselineDecoder::columns_of(const Rect& region) const {
  const int margin = halves_columns() && output_ == Output::kRgb ? 2 : 0;
  const int width = planes_[0].mcu_width;
  return {std::max(0, region.x - margin) / width,
          std::min(ceil_div(region.x + region.width + margin, width), frame_.mcus_across())};
}

void BaselineDecoder::prepare_planes(const McuSpan& mcus) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(frame_.component_count); ++i) {
    Plane& plane = planes_[i];
    plane.origin = mcus.first * plane.mcu_width;
    plane.stride = static_cast<std::ptrdiff_t>(kLead + kJpegSlack) + mcus.count() * plane.mcu_width;
    const std::size_t lines = static_cast<std::size_t>(kKeptRows * plane.mcu_height);
    plane.samples.resize(std::max(
        plane.samples.size(), lines * static_cast<std::size_t>(plane.stride) + kLead + kJpegSlack));
  }
}

void BaselineDecoder::transform(int mcu_row, const std::int16_t* blocks, BlockOrder order,
                                const McuSpan& mcus) {
  const std::size_t mcu_step = static_cast<std::size_t>(frame_.mcu_blocks()) * kBlock;
  const std::size_t count =
      output_ == Output::kGray ? 1 : static_cast<std::size_t>(frame_.component_count);
  for (std::size_t i = 0; i < count; ++i) {
    Plane& plane = planes_[i];
    const BaselineFrame::Component& component = frame_.components[i];
    const auto columns = static_cast<std::size_t>(component.columns);
    const BlockRow row{.first = blocks,
                       .order = order,
                       .count = columns * static_cast<std::size_t>(mcus.count()),
                       .columns = columns,
                       .mcu_step = mcu_step};
    for (int v = 0; v < component.rows; ++v) {
      BlockRow part = row;
      part.first += static_cast<std::size_t>(v) * columns * kBlock;
      inverse_dct(part, plane.multipliers,
                  plane.line(mcu_row * plane.mcu_height + 8 * v) + plane.origin, plane.stride);
    }
    blocks += columns * static_cast<std::size_t>(component.rows) * kBlock;
    if (i == 0) continue;
    for (int y = mcu_row * plane.mcu_height; y < (mcu_row + 1) * plane.mcu_height; ++y) {
      std::uint8_t* const line = plane.line(y);
      if (plane.origin == 0) line[-1] = line[0];
      if (mcus.end == frame_.mcus_across()) line[plane.width] = line[plane.width - 1];
    }
  }
}

const std::uint8_t* BaselineDecoder::chroma(Plane& plane, int y, const Rect& region,
                                            std::vector<std::uint8_t>& line) {
  if (!halves_columns()) return plane.line(y) + region.x;
  const int first = region.x / 2;
  const auto count = static_cast<std::size_t>((region.x + region.width - 1) / 2 - first + 1);
  if (halves_rows()) {
    const int other = std::clamp(y % 2 == 0 ? y / 2 - 1 : y / 2 + 1, 0, plane.height - 1);
    upsample_h2v2(plane.line(y / 2) + first, plane.line(other) + first, count, line.data());
  } else {
    upsample_h2v1(plane.line(y) + first, count, line.data());
  }
  return line.data() + region.x % 2;
}

const std::uint8_t* BaselineDecoder::pixels(int y, const Rect& region) {
  const std::uint8_t* const luma = planes_[0].line(y) + region.x;
  if (output_ == Output::kGray) return luma;
  const auto width = static_cast<std::size_t>(region.width);
  if (frame_.component_count == 1) {
    for (std::size_t x = 0; x < width; ++x) std::memset(rgb_.data() + 3 * x, luma[x], 3);
  } else {
    ycc_to_rgb(luma, chroma(planes_[1], y, region, blue_line_),
               chroma(planes_[2], y, region, red_line_), width, rgb_.data());
  }
  return rgb_.data();
}

BaselineDecoder::Progress BaselineDecoder::begin(const Rect& region) {
  const McuSpan mcus = columns_of(region);
  prepare_planes(mcus);
  const std::size_t line_bytes = static_cast<std::size_t>(region.width) + 2 + kJpegSlack;
  for (auto* line : {&blue_line_, &red_line_}) line->resize(std::max(line->size(), line_bytes));
  rgb_.resize(std::max(rgb_.size(), 3 * line_bytes));
  int top = region.y;
  int bottom = region.y + region.height;
  // Pixels of a row need chroma of the row above or below it. libjpeg-turbo makes the two rows of a
  // chroma row at once, and so meets what is wrong with the codes of the next one.
  if (needs_rows_beside()) {
    top = std::max(0, top - 1);
    bottom = 2 * ceil_div(bottom, 2) + 1;
  }
  const int height = planes_[0].mcu_height;
  return {.region = region,
          .mcus = mcus,
          .first = top / height,
          .end = std::min(ceil_div(bottom, height), frame_.mcus_down()),
          .y = region.y};
}

void BaselineDecoder::emit(int end, Progress& progress, RowSink& rows) {
  const Rect& region = progress.region;
  const int made = std::min(end * planes_[0].mcu_height, frame_.size.height);
  const bool is_last = end == progress.end;
  const int ready =
      std::min(needs_rows_beside() && !is_last ? made - 2 : made, region.y + region.height);
  for (; progress.y < ready; ++progress.y)
    rows.row(progress.y - region.y, pixels(progress.y, region));
}

int BaselineDecoder::read(const SeekIndex& index, const Rect& region, RowSink& rows) {
  indexed_.open(tables_, scan_);
  Progress progress = begin(region);
  if (!indexed_.begin(index, progress.first, progress.end, progress.mcus)) return 0;
  for (int row = progress.first; row < progress.end; ++row) {
    const std::int16_t* const blocks = indexed_.next();
    if (blocks == nullptr) break;
    transform(row, blocks, BlockOrder::kZigzag, progress.mcus);
    emit(row + 1, progress, rows);
  }
  return progress.y - region.y;
}

int BaselineDecoder::read_first(const SeekGrid* grid, const Rect& region, RowSink& rows,
                                std::span<const std::uint64_t>& entries) {
  entries = {};
  if (!whole_.begin(scan_)) return 0;
  const SeekGrid all = grid != nullptr ? *grid : SeekGrid{frame_.mcus_across(), frame_.mcus_down()};
  if (ScanSurvey::is_available()) {
    const std::span<const std::uint64_t> found = survey_.run(tables_, whole_, all.step);
    if (!found.empty()) {
      if (grid != nullptr) entries = found;
      return read(SeekIndex(all, found), region, rows);
    }
  }
  Progress progress = begin(region);
  pass_.begin(tables_, whole_, all.step);
  const int end = grid == nullptr ? progress.end : frame_.mcus_down();
  for (int row = 0; row < end; ++row) {
    const bool is_kept = progress.first <= row && row < progress.end;
    if (!pass_.read_row(is_kept ? progress.mcus : McuSpan{})) return progress.y - region.y;
    if (!is_kept) continue;
    transform(row, pass_.blocks(), BlockOrder::kZigzag, progress.mcus);
    emit(row + 1, progress, rows);
  }
  if (grid != nullptr) entries = pass_.end();
  return progress.y - region.y;
}

int BaselineDecoder::read(const CoefficientImage& image, const Rect& region, RowSink& rows) {
  Progress progress = begin(region);
  blocks_.resize(static_cast<std::size_t>(progress.mcus.count()) *
                 static_cast<std::size_t>(frame_.mcu_blocks()) * kBlock);
  for (int row = progress.first; row < progress.end; ++row) {
    if (!image.read(row, progress.mcus, blocks_.data())) break;
    transform(row, blocks_.data(), BlockOrder::kRows, progress.mcus);
    emit(row + 1, progress, rows);
  }
  return progress.y - region.y;
}

bool BaselineDecoder::copy(CoefficientWriter& to) {
  if (!whole_.begin(scan_)) return false;
  pass_.begin(tables_, whole_, frame_.mcus_across());
  const McuSpan all{0, frame_.mcus_across()};
  for (int row = 0; row < frame_.mcus_down(); ++row) {
    if (!pass_.read_row(all) || !to.add_row(pass_.blocks())) return false;
  }
  return !pass_.end().empty();
}

}  // namespace spdld::media
