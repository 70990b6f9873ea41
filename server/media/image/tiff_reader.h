// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spdld::media {

// Numbers of a TIFF file, or of an Exif block, in the file's byte order. A value.
class TiffReader {
 public:
  TiffReader() = default;
  TiffReader(std::span<const std::byte> bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian) {}

  bool holds(std::uint64_t offset, std::uint64_t count) const {
    return offset <= bytes_.size() && count <= bytes_.size() - offset;
  }

  // Of `count` bytes, up to 8. The caller has asked holds().
  std::uint64_t number(std::uint64_t offset, std::size_t count) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = offset + (big_endian_ ? i : count - 1 - i);
      value = value << 8 | std::to_integer<std::uint64_t>(bytes_[at]);
    }
    return value;
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  bool big_endian() const { return big_endian_; }

 private:
  std::span<const std::byte> bytes_;
  bool big_endian_ = false;
};

}  // namespace spdld::media
