// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spdld::media {

// One file of a zip archive, such as an array of an .npz.
struct ZipMember {
  std::span<const std::byte> stored;  // its bytes as they lie in the archive
  std::uint64_t bytes = 0;            // unpacked
  std::uint32_t crc32 = 0;            // of these
  bool deflated = false;
};

inline bool is_zip(std::span<const std::byte> bytes) {
  const auto at = [&](std::size_t i) { return std::to_integer<char>(bytes[i]); };
  // An empty archive begins with its end.
  return bytes.size() >= 4 && at(0) == 'P' && at(1) == 'K' &&
         ((at(2) == 3 && at(3) == 4) || (at(2) == 5 && at(3) == 6));
}

// Finds the array `name` (the member "NAME.npy") in an archive, with zip64 or without, by its
// directory. kDataLoss: there is none, or the archive is cut off, corrupt, encrypted, or packs it
// in another way than deflate.
Result<ZipMember> find_array(std::span<const std::byte> archive, std::string_view name);

// Unpacks a member part by part. Made once and reused; one thread.
class ZipReader {
 public:
  ZipReader() = default;
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  // The archive must live until the member has been read.
  void begin(const ZipMember& member);
  // The next bytes; fewer than `into` has at the member's end alone. kDataLoss: it is corrupt, or
  // shorter than the directory says.
  Result<std::size_t> read(std::span<std::byte> into);

 private:
  Status inflate_some(std::span<std::byte> into, std::size_t& done);

  ZipMember member_;
  std::size_t consumed_ = 0;  // of a stored member
  std::uint64_t read_ = 0;
  std::uint32_t crc32_ = 0;
  bool ended_ = false;  // the deflate stream
  z_stream stream_{};
  bool has_stream_ = false;
};

}  // namespace spdld::media
