// SPDX-License-Identifier: Apache-2.0
#include "source/tar/tar_header.h"

#include <algorithm>
#include <limits>

namespace spdld::source {
namespace {

constexpr std::size_t kChecksumAt = 148;
constexpr std::size_t kChecksumSize = 8;
constexpr std::uint64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Two's complement, most significant byte first; the first bit only says that it is that.
std::optional<std::uint64_t> base256(std::string_view field) {
  std::uint64_t value = static_cast<unsigned char>(field[0]) & 0x3F;
  // The sign.
  if ((static_cast<unsigned char>(field[0]) & 0x40) != 0) return std::nullopt;
  for (const char c : field.substr(1)) {
    if (value > kMaxNumber >> 8) return std::nullopt;
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

// Blanks before the digits and either the field's end, a blank or a zero byte behind them. An empty
// text is 0, but a field of blanks alone is no number.
std::optional<std::uint64_t> octal(std::string_view field) {
  std::size_t i = 0;
  while (i < field.size() && is_space(field[i])) ++i;
  if (i == field.size()) return std::nullopt;
  std::uint64_t value = 0;
  for (; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i) {
    if (value > kMaxNumber >> 3) return std::nullopt;
    value = value << 3 | static_cast<unsigned>(field[i] - '0');
  }
  if (i < field.size() && field[i] != '\0' && !is_space(field[i])) return std::nullopt;
  return value;
}

}  // namespace

TarHeader::Kind TarHeader::kind() const {
  // The checksum counts as blanks.
  std::uint32_t sum = 0;
  for (const char c : block_) sum += static_cast<unsigned char>(c);
  const std::string_view written = block_.substr(kChecksumAt, kChecksumSize);
  for (const char c : written) sum -= static_cast<unsigned char>(c);
  if (sum == 0) return Kind::kZero;
  sum += kChecksumSize * ' ';
  const std::optional<std::uint64_t> wanted = octal(written);
  if (!wanted) return Kind::kOther;
  if (*wanted == sum) return Kind::kHeader;
  // Some old programs added up signed bytes: each of 128 or more counts 256 less.
  const auto high = [](char c) { return static_cast<unsigned char>(c) >= 128; };
  const auto count = std::count_if(block_.begin(), block_.end(), high) -
                     std::count_if(written.begin(), written.end(), high);
  const std::int64_t signed_sum = std::int64_t{sum} - 256 * count;
  return signed_sum >= 0 && *wanted == static_cast<std::uint64_t>(signed_sum) ? Kind::kHeader
                                                                              : Kind::kOther;
}

std::string_view TarHeader::text(std::size_t at, std::size_t size) const {
  const std::string_view field = block_.substr(at, size);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

std::string TarHeader::name() const {
  std::string name;
  // GNU's own form has "ustar " there, and other things where ustar has the prefix.
  if (block_.substr(257, 6) == std::string_view("ustar\0", 6)) {
    name = text(345, 155);
    if (!name.empty()) name += '/';
  }
  name += text(0, 100);
  return name;
}

std::optional<std::uint64_t> TarHeader::size() const {
  const std::string_view field = block_.substr(124, 12);
  return (static_cast<unsigned char>(field[0]) & 0x80) != 0 ? base256(field) : octal(field);
}

}  // namespace spdld::source
