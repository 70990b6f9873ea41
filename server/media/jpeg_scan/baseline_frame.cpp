// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/baseline_frame.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "media/bytes/byte_order.h"
#include "media/jpeg_scan/jpeg_marker_codes.h"
#include "media/jpeg_scan/jpeg_markers.h"

namespace spdld::media {
namespace {

using std::string_view_literals::operator""sv;

constexpr int kMostJpegSide = 65500;       // libjpeg's
constexpr unsigned kMostAcSize = 10;       // bits of another coefficient
constexpr std::size_t kTables = 4;         // of each kind, in a file
constexpr std::uint8_t kRgbIds[] = "RGB";  // a file with these component names holds no YCbCr

class FrameReader {
 public:
  explicit FrameReader(std::span<const std::byte> file) : file_(file) {}

  // False: it is not a file of this kind.
  bool read() {
    if (file_.size() < 4 || be16(file_, 0) != 0xFFD8) return false;
    for (std::size_t at = 2; file_.size() - at >= 4;) {
      if (byte_at(file_, at) != 0xFF) return false;
      const unsigned marker = byte_at(file_, at + 1);
      const std::size_t length = be16(file_, at + 2);
      at += 2;
      if (length < 2 || length > file_.size() - at) return false;
      const auto body = file_.subspan(at + 2, length - 2);
      at += length;
      if (marker == marker::kSos) {
        frame_.scan = at;
        return read_scan(body);
      }
      if (!read_segment(marker, body)) return false;
    }
    return false;
  }

  const BaselineFrame& frame() const { return frame_; }

 private:
  bool read_segment(unsigned marker, std::span<const std::byte> body) {
    switch (marker) {
      case marker::kSof0: return read_sof(body);
      case marker::kDht: return read_dht(body);
      case marker::kDqt: return read_dqt(body);
      case marker::kDri: return body.size() == 2 && be16(body, 0) == 0;
      case marker::kApp1:
        if (frame_.exif.empty()) frame_.exif = exif_of_app1(body);
        return true;
      // libjpeg takes the colours from it. A transform of 1 is YCbCr.
      case marker::kApp14:
        return !text_of(body).starts_with("Adobe"sv) ||
               (body.size() >= 12 && byte_at(body, 11) == 1);
      default:
        return (marker >= marker::kApp0 && marker <= marker::kApp15) || marker == marker::kCom;
    }
  }

  bool read_sof(std::span<const std::byte> body) {
    if (frame_.component_count != 0 || body.size() < 6 || byte_at(body, 0) != 8) return false;
    frame_.size = {static_cast<int>(be16(body, 3)), static_cast<int>(be16(body, 1))};
    const std::size_t count = byte_at(body, 5);
    if ((count != 1 && count != 3) || body.size() != 6 + 3 * count) return false;
    if (frame_.size.width < 1 || frame_.size.height < 1 || frame_.size.width > kMostJpegSide ||
        frame_.size.height > kMostJpegSide) {
      return false;
    }
    frame_.component_count = static_cast<int>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = 6 + 3 * i;
      ids_[i] = static_cast<std::uint8_t>(byte_at(body, at));
      frame_.components[i].columns = static_cast<int>(byte_at(body, at + 1) >> 4);
      frame_.components[i].rows = static_cast<int>(byte_at(body, at + 1) & 15);
      quantizer_of_[i] = byte_at(body, at + 2);
      if (quantizer_of_[i] >= kTables) return false;
    }
    return count == 1 ? take_gray() : check_sampling();
  }

  // A scan of one component is of single blocks, whatever its sampling factors are.
  bool take_gray() {
    BaselineFrame::Component& gray = frame_.components[0];
    const bool is_sound =
        gray.columns >= 1 && gray.columns <= 4 && gray.rows >= 1 && gray.rows <= 4;
    gray.columns = 1;
    gray.rows = 1;
    return is_sound;
  }

  bool check_sampling() const {
    const auto& [luma, blue, red] = frame_.components;
    if (blue.columns != 1 || blue.rows != 1 || red.columns != 1 || red.rows != 1) return false;
    const bool is_known = (luma.columns == 1 && luma.rows == 1) ||
                          (luma.columns == 2 && (luma.rows == 1 || luma.rows == 2));
    // Of chroma this narrow libjpeg repeats samples, and does not interpolate them.
    const bool is_narrow = luma.columns == 2 && frame_.size.width <= 4;
    const bool are_different = ids_[0] != ids_[1] && ids_[1] != ids_[2] && ids_[0] != ids_[2];
    return is_known && !is_narrow && are_different &&
           !std::equal(ids_.begin(), ids_.end(), kRgbIds);
  }

  bool read_dqt(std::span<const std::byte> body) {
    constexpr std::size_t kBytes = 65;
    while (!body.empty()) {
      const std::size_t table = byte_at(body, 0);  // 16 and up: of two bytes a value
      if (body.size() < kBytes || table >= kTables) return false;
      Quantizer& quantizer = quantizers_[table].emplace();
      for (std::size_t k = 0; k < quantizer.size(); ++k)
        quantizer[k] = static_cast<std::uint16_t>(byte_at(body, 1 + k));
      body = body.subspan(kBytes);
    }
    return true;
  }

  bool read_dht(std::span<const std::byte> body) {
    constexpr std::size_t kHead = 17;
    while (!body.empty()) {
      if (body.size() < kHead) return false;
      const std::size_t is_ac = byte_at(body, 0) >> 4;
      const std::size_t table = byte_at(body, 0) & 15;
      if (is_ac > 1 || table >= kTables) return false;
      HuffmanCodes& codes = codes_[is_ac][table].emplace();
      for (std::size_t i = 0; i < codes.counts.size(); ++i)
        codes.counts[i] = static_cast<std::uint8_t>(byte_at(body, 1 + i));
      const std::size_t count = std::accumulate(codes.counts.begin(), codes.counts.end(), 0u);
      if (count > codes.symbols.size() || body.size() < kHead + count) return false;
      for (std::size_t i = 0; i < count; ++i)
        codes.symbols[i] = static_cast<std::uint8_t>(byte_at(body, kHead + i));
      if (!is_sound(codes, count, is_ac != 0)) return false;
      body = body.subspan(kHead + count);
    }
    return true;
  }

  // No code is all ones or longer than it says, and no symbol means a number that baseline does not
  // have.
  static bool is_sound(const HuffmanCodes& codes, std::size_t count, bool is_ac) {
    unsigned code = 0;
    for (std::size_t i = 0; i < codes.counts.size(); ++i) {
      code = 2 * code + codes.counts[i];
      if (code >= 2u << i) return false;
    }
    return std::all_of(codes.symbols.begin(),
                       codes.symbols.begin() + static_cast<std::ptrdiff_t>(count),
                       [&](unsigned symbol) {
                         return is_ac ? (symbol & 15) <= kMostAcSize : symbol <= kMostDcSize;
                       });
  }

  bool read_scan(std::span<const std::byte> body) {
    const auto count = static_cast<std::size_t>(frame_.component_count);
    if (count == 0 || body.size() != 4 + 2 * count || byte_at(body, 0) != count) return false;
    for (std::size_t i = 0; i < count; ++i) {
      BaselineFrame::Component& component = frame_.components[i];
      const std::size_t dc = byte_at(body, 2 + 2 * i) >> 4;
      const std::size_t ac = byte_at(body, 2 + 2 * i) & 15;
      if (byte_at(body, 1 + 2 * i) != ids_[i] || dc >= kTables || ac >= kTables) return false;
      const auto& quantizer = quantizers_[quantizer_of_[i]];
      if (!codes_[0][dc] || !codes_[1][ac] || !quantizer) return false;
      component.dc = *codes_[0][dc];
      component.ac = *codes_[1][ac];
      component.quantizer = *quantizer;
    }
    const std::size_t at = 1 + 2 * count;
    return byte_at(body, at) == 0 && byte_at(body, at + 1) == 63 && byte_at(body, at + 2) == 0;
  }

  const std::span<const std::byte> file_;
  BaselineFrame frame_;
  std::array<std::uint8_t, 3> ids_{};
  std::array<std::size_t, 3> quantizer_of_{};
  std::array<std::optional<Quantizer>, kTables> quantizers_;
  std::array<std::array<std::optional<HuffmanCodes>, kTables>, 2> codes_;  // of DC, of others
};

}  // namespace

std::optional<BaselineFrame> read_baseline_frame(std::span<const std::byte> file) {
  FrameReader reader(file);
  if (!reader.read()) return std::nullopt;
  return reader.frame();
}

}  // namespace spdld::media
