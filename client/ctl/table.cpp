// SPDX-License-Identifier: Apache-2.0
#include "ctl/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/text/printable.h"

namespace spdld::ctl {
namespace {

// Columns on a terminal, for text without wide characters: code points.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

Table::Table(std::vector<std::string> headings) : headings_(std::move(headings)) {
  for (std::string& heading : headings_) {
    right_.push_back(heading.starts_with('>'));
    if (right_.back()) heading.erase(0, 1);
  }
}

void Table::add(std::vector<std::string> row) {
  for (std::string& text : row) text = cell(text);
  row.resize(headings_.size());
  rows_.push_back(std::move(row));
}

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> widths;
  for (const std::string& heading : headings_) widths.push_back(width(heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  const auto print_row = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      const std::string gap(widths[i] - width(row[i]), ' ');
      line += right_[i] ? gap + row[i] : row[i] + gap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  };
  print_row(headings_);
  for (const auto& row : rows_) print_row(row);
}

std::string cell(std::string_view text) { return text.empty() ? "-" : printable(text); }

std::string show_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string show_seconds(double seconds) {
  if (!(seconds >= 0)) return "-";
  if (seconds < 60) return fmt::format("{:.2f}s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::min(seconds, 1e15));
  if (whole < 3600) return fmt::format("{}m {}s", whole / 60, whole % 60);
  if (whole < 86'400) return fmt::format("{}h {}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d {}h", whole / 86'400, whole % 86'400 / 3600);
}

std::string show_rate(double per_s) {
  // Below ten, tenths tell slow from not at all.
  return per_s > 0 && per_s < 9.95 ? fmt::format("{:.1f}", per_s) : fmt::format("{:.0f}", per_s);
}

std::string show_time(std::uint64_t unix_ms) {
  const auto unix_s = static_cast<std::time_t>(unix_ms / 1000);
  std::tm utc{};
  if (::gmtime_r(&unix_s, &utc) == nullptr) return "-";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string show_microseconds(std::uint64_t us) {
  if (us < 1000) return fmt::format("{}us", us);
  const auto value = static_cast<double>(us);
  return us < 1'000'000 ? fmt::format("{:.1f}ms", value / 1e3)
                        : fmt::format("{:.2f}s", value / 1e6);
}

}  // namespace spdld::ctl
