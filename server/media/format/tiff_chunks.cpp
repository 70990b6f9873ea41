// SPDX-License-Identifier: Apache-2.0
#include "media/format/tiff_chunks.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "media/bytes/byte_order.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

using Compression = TiffLayout::Compression;

// FFmpeg's codec decodes it.
bool is_coded(const TiffLayout& layout) {
  switch (layout.compression()) {
    case Compression::kLzw:
    case Compression::kCcittRle:
    case Compression::kCcittT4:
    case Compression::kCcittT6: return true;
    default: return false;
  }
}

bool is_fax(const TiffLayout& layout) {
  return is_coded(layout) && layout.compression() != Compression::kLzw;
}

// The file's bytes are the chunk's.
bool is_plain(const TiffLayout& layout) {
  return layout.compression() == Compression::kNone && !layout.bits_reversed();
}

// Pixels of a row as the codec is told: fax codes count bits, all others make bytes.
std::uint64_t codec_width(const TiffLayout& layout) {
  return is_fax(layout) ? layout.chunk_width() : layout.chunk_row_bytes();
}

// Entries of the directory, each of one number, or of one for each strip.
constexpr std::size_t kEntries = 11;
constexpr std::size_t kDirectoryAt = 8;
constexpr std::size_t kDirectoryBytes = 2 + kEntries * 12 + 4;

std::size_t header_bytes(std::uint32_t strips) {
  return kDirectoryAt + kDirectoryBytes + std::size_t{strips} * 8;
}

void put_entry(TiffTag tag, std::uint32_t count, std::uint32_t value, std::uint8_t*& at) {
  constexpr std::uint32_t kLong = 4;
  put_le16(static_cast<std::uint32_t>(tag), at);
  put_le16(kLong, at + 2);
  put_le32(count, at + 4);
  put_le32(value, at + 8);
  at += 12;
}

std::byte reversed(std::byte byte) {
  auto bits = std::to_integer<unsigned>(byte);
  bits = (bits & 0xF0U) >> 4 | (bits & 0x0FU) << 4;
  bits = (bits & 0xCCU) >> 2 | (bits & 0x33U) << 2;
  return static_cast<std::byte>((bits & 0xAAU) >> 1 | (bits & 0x55U) << 1);
}

// Fills `out`, or says that the data ends before.
bool unpack_runs(std::span<const std::byte> data, std::span<std::uint8_t> out) {
  while (!out.empty()) {
    if (data.size() < 2) return false;
    const auto code = std::to_integer<unsigned>(data[0]);
    data = data.subspan(1);
    if (code == 128) continue;
    const std::size_t count = std::min<std::size_t>(code < 128 ? code + 1 : 257 - code, out.size());
    const std::size_t bytes = code < 128 ? count : 1;
    if (data.size() < bytes) return false;
    if (code < 128) {
      std::memcpy(out.data(), data.data(), count);
    } else {
      std::memset(out.data(), std::to_integer<int>(data[0]), count);
    }
    data = data.subspan(bytes);
    out = out.subspan(count);
  }
  return true;
}

// Sums up the differences of a row.
void sum_up(std::uint8_t* row, const TiffLayout& layout) {
  const std::size_t bytes = layout.chunk_row_bytes();
  const std::size_t step = std::size_t{layout.chunk_samples()} * layout.bits() / 8;
  if (layout.bits() == 8) {
    for (std::size_t i = step; i < bytes; ++i)
      row[i] = static_cast<std::uint8_t>(row[i] + row[i - step]);
    return;
  }
  const std::size_t high = layout.big_endian() ? 0 : 1;
  for (std::size_t i = step; i + 1 < bytes; i += 2) {
    const std::uint8_t* left = row + i - step;
    const unsigned sum =
        row[i + high] * 256U + row[i + 1 - high] + left[high] * 256U + left[1 - high];
    row[i + high] = static_cast<std::uint8_t>(sum >> 8);
    row[i + 1 - high] = static_cast<std::uint8_t>(sum);
  }
}

}  // namespace

Result<std::uint32_t> TiffChunks::at_once(const TiffLayout& layout) const {
  if (!is_coded(layout)) return 1;
  SPDLD_TRY(
      codec_.check_size(static_cast<std::int64_t>(codec_width(layout)), layout.chunk_height()));
  // Each call of the codec costs some 20 microseconds.
  constexpr std::uint64_t kEnoughBytes = 1 << 20;
  const std::uint64_t chunk = layout.chunk_row_bytes() * layout.chunk_height();
  const std::uint64_t most = std::max<std::uint64_t>(1, kEnoughBytes / chunk);
  return static_cast<std::uint32_t>(std::min(most, layout.chunks()));
}

std::uint64_t TiffChunks::decode_bytes(const TiffLayout& layout, std::uint32_t at_once) {
  if (is_plain(layout)) return 0;
  constexpr std::uint64_t kPadding = 64;  // columns and rows beyond the image
  const std::uint64_t row = layout.chunk_row_bytes() + kPadding;
  const std::uint64_t rows = std::uint64_t{layout.chunk_height()} * at_once + kPadding;
  const std::uint64_t data = layout.largest_chunk_bytes() * at_once + header_bytes(at_once);
  return row * rows * 5 / 4 + data * 5 / 4;
}

Status TiffChunks::decode(const TiffLayout& layout, std::uint64_t first, std::uint32_t count,
                          std::uint32_t rows) {
  if (is_coded(layout)) {
    SPDLD_TRY(decode_strips(layout, first, count, rows));
  } else {
    SPDLD_TRY(unpack(layout, first, rows));
  }
  if (layout.differences())
    for (std::uint32_t y = 0; y < rows; ++y) sum_up(rows_ + y * stride_, layout);
  return {};
}

Status TiffChunks::unpack(const TiffLayout& layout, std::uint64_t chunk, std::uint32_t rows) {
  std::span<const std::byte> data = layout.chunk(chunk);
  stride_ = static_cast<std::ptrdiff_t>(layout.chunk_row_bytes());
  if (layout.bits_reversed()) {
    std::transform(data.begin(), data.end(), turned_.resize(data.size()), reversed);
    data = turned_.bytes();
  }
  if (layout.compression() == Compression::kNone) {
    // Nobody writes there: such a file has no differences.
    rows_ = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(data.data()));
    return {};
  }
  const std::size_t bytes = layout.chunk_row_bytes() * rows;
  const std::span<std::uint8_t> out(reinterpret_cast<std::uint8_t*>(unpacked_.resize(bytes)),
                                    bytes);
  rows_ = out.data();
  bool full = false;
  if (layout.compression() == Compression::kPackBits) {
    full = unpack_runs(data, out);
  } else {
    SPDLD_ASSIGN(full, inflater_.fill(data, out));
  }
  if (full) return {};
  return corrupt("TIFF", "the data of a strip or tile is damaged, or ends before its pixels do");
}

// Where fax codes of T.4 end too early, FFmpeg's codec says nothing, and leaves the rest of the
// strip as it was. What looks so may be a picture, until it comes in another guise.
Status TiffChunks::decode_strips(const TiffLayout& layout, std::uint64_t first, std::uint32_t count,
                                 std::uint32_t rows) {
  constexpr std::uint8_t kFill = 0xA5;
  constexpr std::uint8_t kOtherFill = 0x5A;
  SPDLD_TRY(decode_filled(layout, first, count, rows, kFill));
  if (!has_untouched(layout, rows, kFill)) return {};
  SPDLD_TRY(decode_filled(layout, first, count, rows, kOtherFill));
  if (!has_untouched(layout, rows, kOtherFill)) return {};
  return corrupt("TIFF", "the data of a strip or tile ends before its pixels do");
}

Status TiffChunks::decode_filled(const TiffLayout& layout, std::uint64_t first, std::uint32_t count,
                                 std::uint32_t rows, std::uint8_t fill) {
  codec_.fill_frames(fill);
  SPDLD_TRY(fill_packet(layout, first, count, rows));
  SPDLD_TRY(codec_.decode(decode_bytes(layout, count)));
  rows_ = codec_.frame().data[0];
  stride_ = codec_.frame().linesize[0];
  return {};
}

bool TiffChunks::has_untouched(const TiffLayout& layout, std::uint32_t rows,
                               std::uint8_t fill) const {
  for (std::uint32_t end = std::min(layout.chunk_height(), rows);;
       end = std::min(end + layout.chunk_height(), rows)) {
    const std::uint8_t* const last = row(end - 1);
    if (std::all_of(last, last + layout.chunk_row_bytes(),
                    [fill](std::uint8_t byte) { return byte == fill; }))
      return true;
    if (end == rows) return false;
  }
}

Status TiffChunks::fill_packet(const TiffLayout& layout, std::uint64_t first, std::uint32_t count,
                               std::uint32_t rows) {
  std::uint64_t bytes = header_bytes(count);
  for (std::uint32_t i = 0; i < count; ++i) bytes += layout.chunk(first + i).size();
  SPDLD_ASSIGN(std::uint8_t* const packet, codec_.begin_packet(bytes));
  std::memset(packet, 0, header_bytes(count));
  constexpr std::string_view kSignature = "II*";
  std::copy(kSignature.begin(), kSignature.end(), packet);
  put_le32(kDirectoryAt, packet + 4);

  constexpr std::uint32_t kOffsetsAt = kDirectoryAt + kDirectoryBytes;
  const std::uint32_t counts_at = kOffsetsAt + count * 4;
  auto data_at = static_cast<std::uint32_t>(header_bytes(count));
  const auto first_bytes = static_cast<std::uint32_t>(layout.chunk(first).size());
  std::uint8_t* at = packet + kDirectoryAt;
  put_le16(kEntries, at);
  at += 2;
  put_entry(TiffTag::kImageWidth, 1, static_cast<std::uint32_t>(codec_width(layout)), at);
  put_entry(TiffTag::kImageLength, 1, rows, at);
  put_entry(TiffTag::kBitsPerSample, 1, is_fax(layout) ? 1 : 8, at);
  put_entry(TiffTag::kCompression, 1, static_cast<std::uint32_t>(layout.compression()), at);
  put_entry(TiffTag::kPhotometric, 1, 1, at);
  put_entry(TiffTag::kFillOrder, 1, layout.bits_reversed() ? 2 : 1, at);
  put_entry(TiffTag::kStripOffsets, count, count == 1 ? data_at : kOffsetsAt, at);
  put_entry(TiffTag::kSamplesPerPixel, 1, 1, at);
  put_entry(TiffTag::kRowsPerStrip, 1, layout.chunk_height(), at);
  put_entry(TiffTag::kStripByteCounts, count, count == 1 ? first_bytes : counts_at, at);
  put_entry(TiffTag::kT4Options, 1, layout.t4_options(), at);

  for (std::uint32_t i = 0; i < count; ++i) {
    const std::span<const std::byte> data = layout.chunk(first + i);
    put_le32(data_at, packet + kOffsetsAt + std::size_t{i} * 4);
    put_le32(static_cast<std::uint32_t>(data.size()), packet + counts_at + std::size_t{i} * 4);
    std::memcpy(packet + data_at, data.data(), data.size());
    data_at += static_cast<std::uint32_t>(data.size());
  }
  return {};
}

}  // namespace spdld::media
