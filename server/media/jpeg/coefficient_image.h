// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/memory/byte_buffer.h"
#include "media/jpeg_scan/baseline_frame.h"
#include "media/jpeg_scan/scan_tables.h"
#include "media/jpeg_scan/seek_index.h"

namespace spdld::media {

// A baseline JPEG image as a cache keeps it: its quantized coefficients in packed blocks
// (media/jpeg/coefficient_kernels.h), each row of MCUs from left to right, and where each row and
// every so many MCUs of it begin. Of the file's other segments the size, the quantizers and the
// orientation are kept alone. A view.
class CoefficientImage {
 public:
  // None: these bytes are not what CoefficientWriter makes. What is wrong with the blocks is found
  // by read().
  static std::optional<CoefficientImage> parse(std::span<const std::byte> bytes);

  // Without Huffman codes and scan.
  const BaselineFrame& frame() const { return frame_; }
  int exif_orientation() const { return exif_orientation_; }

  // The blocks of these MCUs, each component's row by row, each block's coefficients row by row.
  // False: the bytes are damaged.
  bool read(int row, const McuSpan& mcus, std::int16_t* blocks) const;

 private:
  BaselineFrame frame_;
  int exif_orientation_ = 0;
  SeekGrid grid_;
  std::span<const std::byte> bytes_;
};

// Makes such images. Used by one thread; memory is kept for the next one.
class CoefficientWriter {
 public:
  static constexpr std::uint64_t kMostBytes = UINT32_MAX;
  // The most that an image takes whose file has so many bytes: no image may take more than
  // kMostBytes.
  static std::size_t most_bytes(const BaselineFrame& frame, std::size_t file_bytes);

  void begin(const BaselineFrame& frame, std::size_t file_bytes, int exif_orientation);
  // The blocks of the next row's MCUs, in zigzag order. False: they are more than a file of that
  // size has.
  bool add_row(const std::int16_t* blocks);
  // After the last row. Stays until the next begin().
  std::span<const std::byte> end();

 private:
  SeekGrid grid_;
  std::size_t mcu_blocks_ = 0;
  std::size_t next_entry_ = 0;
  std::size_t at_ = 0;
  ByteBuffer bytes_;
};

}  // namespace spdld::media
