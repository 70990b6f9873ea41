// SPDX-License-Identifier: Apache-2.0
#include "ctl/numbers.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace spdld::ctl {
namespace {

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 10> kUnits = {{
    {"", 1},
    {"B", 1},
    {"kB", 1'000},
    {"KiB", std::uint64_t{1} << 10},
    {"MB", 1'000'000},
    {"MiB", std::uint64_t{1} << 20},
    {"GB", 1'000'000'000},
    {"GiB", std::uint64_t{1} << 30},
    {"TB", 1'000'000'000'000},
    {"TiB", std::uint64_t{1} << 40},
}};

template <typename Number>
bool parse(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  return failure == std::errc() && stopped == end;
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const std::size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, number_end);
  std::string_view unit = text.substr(number_end);
  if (unit.size() > 1 && unit.front() == ' ') unit.remove_prefix(1);
  const auto* const found = std::find_if(kUnits.begin(), kUnits.end(),
                                         [&](const auto& known) { return known.first == unit; });
  if (found == kUnits.end()) return std::nullopt;
  std::uint64_t count = 0;
  if (parse(number, count)) {
    if (count >
        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / found->second)
      return std::nullopt;
    return count * found->second;
  }
  double fraction = 0;
  if (number.find('.') == std::string_view::npos || !parse(number, fraction)) return std::nullopt;
  const double bytes = fraction * static_cast<double>(found->second);
  // Beyond 2^53 a double no longer tells whole bytes apart.
  if (bytes != std::floor(bytes) || bytes > 0x1p53) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

CLI::Validator whole_number(std::uint64_t least) {
  return CLI::Validator(
      [least](std::string& text) {
        std::uint64_t number = 0;
        if (parse(text, number) && number >= least) return std::string();
        return fmt::format("'{}' is no whole number of at least {}", text, least);
      },
      "");
}

CLI::Validator number_above_zero() {
  return CLI::Validator(
      [](std::string& text) {
        double number = 0;
        if (parse(text, number) && std::isfinite(number) && number > 0) return std::string();
        return fmt::format("'{}' is no number above 0", text);
      },
      "");
}

CLI::Validator size_in_bytes() {
  return CLI::Validator(
      [](std::string& text) {
        const std::optional<std::uint64_t> bytes = parse_size(text);
        if (!bytes) return fmt::format("'{}' is no size such as 2GiB, 1.5GiB or 1048576", text);
        text = std::to_string(*bytes);
        return std::string();
      },
      "");
}

}  // namespace spdld::ctl
