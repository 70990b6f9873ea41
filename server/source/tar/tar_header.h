// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spdld::source {

// Headers and contents of a tar archive begin at multiples of this.
inline constexpr std::uint64_t kTarBlock = 512;

// `size` with what fills its last block. size <= INT64_MAX.
constexpr std::uint64_t tar_padded(std::uint64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

// One header block, read as GNU tar does: V7, ustar and GNU's own form. A view.
class TarHeader {
 public:
  // `block` has kTarBlock bytes.
  explicit TarHeader(std::string_view block) : block_(block) {}

  enum class Kind {
    kZero,    // no header: what the end of an archive is made of
    kHeader,  // its checksum is right
    kOther,
  };
  Kind kind() const;

  char type() const { return block_[156]; }  // '0' or '\0': a file
  std::string name() const;                  // with ustar's prefix
  std::string_view link() const { return text(157, 100); }
  // Octal or base-256. Nothing: that is no number, or one beyond INT64_MAX.
  std::optional<std::uint64_t> size() const;

 private:
  // A field as far as its first zero byte.
  std::string_view text(std::size_t at, std::size_t size) const;

  std::string_view block_;
};

}  // namespace spdld::source
