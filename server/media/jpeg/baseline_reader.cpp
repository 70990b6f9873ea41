// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/baseline_reader.h"

#include "base/memory/byte_buffer.h"
#include "media/image/exif.h"

namespace spdld::media {

std::optional<BaselineFile> BaselineReader::find(std::span<const std::byte> file) const {
  constexpr int kAlpha = 4;
  if (options_.indexes == nullptr || mode_.channels == kAlpha) return std::nullopt;
  const std::optional<BaselineFrame> frame = read_baseline_frame(file);
  if (!frame) return std::nullopt;
  const SeekIndexes::Key key = options_.indexes->key_of(file);
  const SeekIndexes::Known known =
      options_.indexes->find(key, frame->mcus_across(), frame->mcus_down());
  if (known.is_odd) return std::nullopt;
  return BaselineFile{file, *frame, key, known.index};
}

std::uint64_t BaselineReader::most_bytes(const BaselineFile& file) {
  return BaselineDecoder::most_scan_bytes(file.frame, file.bytes.size()) +
         BaselineDecoder::most_bytes(file.frame);
}

std::size_t BaselineReader::row_bytes(int width) const {
  const DecodedRows rows = BaselineDecoder::rows_of(BaselineDecoder::output_for(mode_));
  return static_cast<std::size_t>(width) * static_cast<std::size_t>(rows.samples.step);
}

int BaselineReader::read(const BaselineFile& file, const Rect& region, RowSink& rows) {
  decoder_.open(file.frame, file.bytes, BaselineDecoder::output_for(mode_));
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

int BaselineReader::read(const CoefficientImage& image, const Rect& region, RowSink& rows) {
  decoder_.open(image, BaselineDecoder::output_for(mode_));
  return decoder_.read(image, region, rows);
}

std::uint64_t BaselineReader::most_recode_bytes(const BaselineFile& file) {
  const std::uint64_t most = CoefficientWriter::most_bytes(file.frame, file.bytes.size());
  return most > CoefficientWriter::kMostBytes ? 0 : ByteBuffer::grown(most);
}

std::span<const std::byte> BaselineReader::recode(const BaselineFile& file) {
  writer_.begin(file.frame, file.bytes.size(), exif_orientation(file.frame.exif));
  decoder_.open(file.frame, file.bytes, BaselineDecoder::output_for(mode_));
  if (!decoder_.copy(writer_)) {
    options_.indexes->add_odd(file.key);
    return {};
  }
  options_.count(JpegWay::kRecoded);
  return writer_.end();
}

}  // namespace spdld::media
