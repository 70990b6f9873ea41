// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/jpeg_markers.h"

#include <bitset>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "media/bytes/byte_order.h"
#include "media/image/image_errors.h"
#include "media/jpeg_scan/jpeg_marker_codes.h"

namespace spdld::media {
namespace {

bool is_restart(unsigned marker) { return marker >= marker::kRst0 && marker <= marker::kRst7; }

bool is_frame(unsigned marker) {
  // SOF0 to SOF15 share their range with DHT, JPG and DAC.
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

class MarkerWalk {
 public:
  explicit MarkerWalk(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // The next marker's code, wherever it begins: like libjpeg, bytes that are no marker are passed
  // over. None: the file ended.
  bool next_marker(unsigned& marker) {
    while (at_ < bytes_.size()) {
      const void* found = std::memchr(bytes_.data() + at_, 0xFF, bytes_.size() - at_);
      if (found == nullptr) break;
      at_ = static_cast<std::size_t>(static_cast<const std::byte*>(found) - bytes_.data());
      while (at_ < bytes_.size() && byte(at_) == marker::kFill) ++at_;
      if (at_ == bytes_.size()) break;
      marker = byte(at_++);
      if (marker != marker::kStuffed) return true;
    }
    at_ = bytes_.size();
    return false;
  }

  // The body of the segment whose marker was just read. False: the file ends inside, or the length
  // is impossible.
  bool segment(std::span<const std::byte>& body) {
    if (bytes_.size() - at_ < 2) return false;
    const std::size_t length = std::size_t{byte(at_)} << 8 | byte(at_ + 1);
    if (length < 2 || bytes_.size() - at_ < length) return false;
    body = bytes_.subspan(at_ + 2, length - 2);
    at_ += length;
    return true;
  }

 private:
  unsigned byte(std::size_t at) const { return std::to_integer<unsigned>(bytes_[at]); }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 2;  // behind SOI
};

detail::Failure truncated_jpeg(std::span<const std::byte> bytes, std::string_view missing) {
  return media::truncated("JPEG", missing, bytes.size());
}

}  // namespace

std::span<const std::byte> exif_of_app1(std::span<const std::byte> body) {
  constexpr std::string_view kName("Exif\0\0", 6);
  return text_of(body).starts_with(kName) ? body.subspan(kName.size())
                                          : std::span<const std::byte>();
}

Result<JpegMarkers> survey_jpeg(std::span<const std::byte> bytes) {
  if (bytes.size() < 2 || bytes[0] != std::byte{0xFF} || bytes[1] != std::byte{marker::kSoi}) {
    return truncated_jpeg(bytes, "start-of-image marker");
  }
  JpegMarkers markers;
  bool framed = false;
  MarkerWalk walk(bytes);
  unsigned marker = 0;
  while (walk.next_marker(marker)) {
    if (marker == marker::kEoi) {
      if (!framed) return truncated_jpeg(bytes, "frame header before the end-of-image marker");
      if (markers.scans == 0) return truncated_jpeg(bytes, "scan before the end-of-image marker");
      return markers;
    }
    if (is_restart(marker) || marker == marker::kTem || marker == marker::kSoi) continue;
    std::span<const std::byte> body;
    if (!walk.segment(body)) break;
    if (is_frame(marker)) framed = true;
    if (marker == marker::kSos) ++markers.scans;
    if (marker == marker::kApp1 && markers.exif.empty()) markers.exif = exif_of_app1(body);
  }
  return truncated_jpeg(bytes, "end-of-image marker");
}

bool has_all_components(std::span<const std::byte> bytes) {
  constexpr std::size_t kFrameHead = 6;       // precision, height, width, and how many components
  constexpr std::size_t kFrameComponent = 3;  // its id first
  constexpr std::size_t kScanComponent = 2;
  std::bitset<256> missing;
  bool is_progressive = false;
  MarkerWalk walk(bytes);
  unsigned marker = 0;
  while (walk.next_marker(marker)) {
    if (marker == marker::kSoi && missing.any()) return false;
    if (is_restart(marker) || marker == marker::kTem || marker == marker::kSoi ||
        marker == marker::kEoi)
      continue;
    std::span<const std::byte> body;
    if (!walk.segment(body)) break;
    if (is_frame(marker)) {
      // SOF2 and every fourth one behind it.
      is_progressive = marker % 4 == 2;
      for (std::size_t at = kFrameHead; at + kFrameComponent <= body.size(); at += kFrameComponent)
        missing.set(std::to_integer<std::size_t>(body[at]));
    }
    if (marker != marker::kSos || body.empty()) continue;
    const auto count = std::to_integer<std::size_t>(body[0]);
    const std::size_t band = 1 + count * kScanComponent;
    if (body.size() < band + 3) continue;
    // A component's picture begins with the mean of each block, which later scans refine.
    if (is_progressive && (body[band] != std::byte{0} || (body[band + 2] >> 4) != std::byte{0}))
      continue;
    for (std::size_t i = 0; i < count; ++i)
      missing.reset(std::to_integer<std::size_t>(body[1 + i * kScanComponent]));
  }
  return missing.none();
}

}  // namespace spdld::media
