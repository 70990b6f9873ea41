// SPDX-License-Identifier: Apache-2.0
#include "spec/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

namespace spdld::spec {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

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

// Edits (insert, remove, replace, swap neighbours) that make one name of the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

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

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
  });
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

namespace {

std::string nearest(std::string_view name, const std::vector<std::string>& known,
                    std::size_t most_wrong) {
  constexpr std::size_t kLongest = 64;  // long texts are no misspelt names
  if (name.size() > kLongest) return "";
  const std::string* best = nullptr;
  std::size_t best_distance = most_wrong + 1;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLongest || candidate == name) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : "; did you mean '" + *best + "'?";
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  return nearest(name, known, std::max<std::size_t>(1, (name.size() + 1) / 3));
}

std::string did_you_slip(std::string_view name, const std::vector<std::string>& known) {
  return nearest(name, known, std::clamp<std::size_t>(name.size() / 4, 1, 2));
}

std::string hint(std::string_view wrong, const std::vector<std::string>& known) {
  if (known.empty()) return "; there are none";
  const std::string near = did_you_mean(wrong, known);
  return near.empty() ? "; there are: " + join(known) : near;
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

}  // namespace spdld::spec
