// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "media/image/raster_decoder.h"
#include "media/jpeg/baseline_reader.h"
#include "media/jpeg/jpeg_options.h"
#include "media/jpeg/libjpeg_reader.h"

namespace spdld::media {

// Compares what our own decoder makes of some images, one in `verify_one_in`, with what
// libjpeg-turbo makes of them, and tells the indexes, by which operators see it. A difference costs
// no row: the sink has libjpeg-turbo's then.
//
// Owned by one JpegDecoder, whose readers it uses; used by its thread alone.
class JpegVerifier {
 public:
  JpegVerifier(const JpegOptions& options, BaselineReader& ours, LibjpegReader& libjpeg)
      : options_(options), ours_(ours), libjpeg_(libjpeg) {}

  // Whether the next image is one of these: to be asked once for each.
  bool is_next();
  // The memory that the comparison of a whole image takes; 0 where none is compared.
  std::uint64_t most_bytes(const BaselineFrame& frame) const;

  // Reads the region both ways. `libjpeg` has the file open unless it has an index.
  Status read(const BaselineFile& file, const Rect& region, RowSink& rows);
  // Whether the whole image comes out of `recoded` as libjpeg-turbo makes it of the file.
  bool is_same(const BaselineFile& file, std::span<const std::byte> recoded);

 private:
  class Comparison;

  bool compare(const BaselineFile& file, std::span<const std::byte> recoded);

  const JpegOptions options_;
  BaselineReader& ours_;
  LibjpegReader& libjpeg_;
};

}  // namespace spdld::media
