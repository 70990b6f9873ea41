// SPDX-License-Identifier: Apache-2.0
#include "spec/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "base/text/ascii.h"

namespace spdld::spec {
namespace {

bool is_alphanumeric(char c) { return is_digit(c) || is_letter(c); }

// Without the sign that from_chars does not take.
std::string_view without_plus(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 10> kUnits{{
    {"", 1},
    {"B", 1},
    {"kB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
    {"KiB", std::uint64_t{1} << 10},
    {"MiB", std::uint64_t{1} << 20},
    {"GiB", std::uint64_t{1} << 30},
    {"TiB", std::uint64_t{1} << 40},
}};

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  text = without_plus(text);
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  text = without_plus(text);
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || !(is_digit(digits[0]) || digits[0] == '.')) return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])) return std::nullopt;
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const std::size_t number_end = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, number_end);
  std::string_view unit = number_end == text.npos ? "" : text.substr(number_end);
  if (unit.starts_with(' ')) unit.remove_prefix(1);

  const auto found = std::find_if(kUnits.begin(), kUnits.end(),
                                  [&](const auto& known) { return known.first == unit; });
  if (found == kUnits.end() || number.empty()) return std::nullopt;
  const std::uint64_t scale = found->second;
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();

  if (number.find('.') == number.npos) {
    std::uint64_t count = 0;
    const auto [end, failure] =
        std::from_chars(number.data(), number.data() + number.size(), count);
    if (failure != std::errc() || end != number.data() + number.size()) return std::nullopt;
    if (count > kMax / scale) return std::nullopt;
    return count * scale;
  }
  const std::optional<double> count = parse_number(number);
  if (!count) return std::nullopt;
  const double bytes = *count * static_cast<double>(scale);
  // Beyond 2^53 a double no longer tells whole bytes apart.
  if (bytes != std::floor(bytes) || bytes > 0x1p53) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::optional<double> parse_percent(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  const std::optional<double> percent = parse_number(text.substr(0, text.size() - 1));
  if (!percent || *percent <= 0 || *percent > 100) return std::nullopt;
  return *percent / 100;
}

bool is_field_name(std::string_view text) {
  constexpr std::size_t kMost = 47;  // sizeof wire::FieldLayout::name, less its NUL
  return !text.empty() && text.size() <= kMost && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '_'; });
}

std::string not_a_field_name(std::string_view text) {
  return quote(text) +
         " is no name of a field: it has letters, digits and _, at most 47 of them, and begins "
         "with a letter";
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 128 && text[0] != '-' && text[0] != '.' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

std::string quote(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::size_t shown = std::min(text.size(), kShown);
  // Not in the middle of a UTF-8 sequence.
  while (shown < text.size() && shown > 0 &&
         (static_cast<unsigned char>(text[shown]) & 0xC0) == 0x80) {
    --shown;
  }
  std::string out = "'";
  for (const char c : text.substr(0, shown)) {
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  if (shown < text.size()) out += "...";
  return out + "'";
}

std::string show_number(double number) {
  if (std::abs(number) < 1e15 && number == std::floor(number)) {
    return std::to_string(static_cast<std::int64_t>(number));
  }
  std::array<char, 32> buffer{};
  const auto [end, failure] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return failure == std::errc() ? std::string(buffer.data(), end) : std::to_string(number);
}

}  // namespace spdld::spec
