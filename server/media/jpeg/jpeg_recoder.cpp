// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/jpeg_recoder.h"

#include "base/memory/byte_buffer.h"
#include "media/image/exif.h"

namespace spdld::media {

std::uint64_t JpegRecoder::most_bytes(const BaselineFile& file) {
  const std::uint64_t most = CoefficientWriter::most_bytes(file.frame, file.bytes.size());
  return most > CoefficientWriter::kMostBytes ? 0 : ByteBuffer::grown(most);
}

std::span<const std::byte> JpegRecoder::recode(const BaselineFile& file) {
  writer_.begin(file.frame, file.bytes.size(), exif_orientation(file.frame.exif));
  if (!ours_.copy(file, writer_)) return {};
  options_.count(JpegWay::kRecoded);
  return writer_.end();
}

}  // namespace spdld::media
