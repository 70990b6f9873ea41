// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "media/bytes/inflater.h"
#include "media/format/frame_decoder.h"
#include "media/format/tiff_layout.h"

namespace spdld::media {

// Undoes the compression of a TIFF's chunks. LZW and fax codes are FFmpeg's, whose codec knows no
// tiles, and not all that samples may mean: it gets the compressed data, of several chunks at once,
// as the strips of a plain gray image whose pixels are the chunks' bytes. It takes deflated data
// that ends too early for good, and PackBits only if no run goes from row to row; these two are
// undone here. Owned by one TiffDecoder; ready again after any failure.
class TiffChunks {
 public:
  Status prepare() { return codec_.prepare(); }

  // How many chunks decode() takes at once; kResourceExhausted if it cannot take a single one.
  Result<std::uint32_t> at_once(const TiffLayout& layout) const;
  // What decode() takes at most.
  static std::uint64_t decode_bytes(const TiffLayout& layout, std::uint32_t at_once);

  // Chunks [first, first + count), one below the other: `rows` rows in all.
  Status decode(const TiffLayout& layout, std::uint64_t first, std::uint32_t count,
                std::uint32_t rows);
  // Row `y` of them, until the next decode().
  const std::uint8_t* row(std::uint32_t y) const { return rows_ + y * stride_; }

 private:
  Status unpack(const TiffLayout& layout, std::uint64_t chunk, std::uint32_t rows);
  Status decode_strips(const TiffLayout& layout, std::uint64_t first, std::uint32_t count,
                       std::uint32_t rows);
  Status decode_filled(const TiffLayout& layout, std::uint64_t first, std::uint32_t count,
                       std::uint32_t rows, std::uint8_t fill);
  // Whether the last row of some strip is nothing but `fill`.
  bool has_untouched(const TiffLayout& layout, std::uint32_t rows, std::uint8_t fill) const;
  Status fill_packet(const TiffLayout& layout, std::uint64_t first, std::uint32_t count,
                     std::uint32_t rows);

  FrameDecoder codec_{"tiff", "TIFF"};
  Inflater inflater_;
  ByteBuffer turned_;  // data with its bits the right way round
  ByteBuffer unpacked_;
  std::uint8_t* rows_ = nullptr;
  std::ptrdiff_t stride_ = 0;
};

}  // namespace spdld::media
