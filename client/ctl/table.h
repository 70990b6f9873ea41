// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace spdld::ctl {

// Rows of text under headings, in columns as wide as their widest cell. A heading that starts with
// '>' aligns its column to the right. What would move the terminal's cursor is written as "\xNN".
class Table {
 public:
  explicit Table(std::vector<std::string> headings);

  void add(std::vector<std::string> row);  // as many cells as there are headings
  std::size_t rows() const { return rows_.size(); }
  void print(std::ostream& out) const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// The text on one line, without control characters; an empty one as "-".
std::string cell(std::string_view text);

std::string show_bytes(std::uint64_t bytes);      // "12.5 MiB"
std::string show_seconds(double seconds);         // "1d 2h", "3m 20s", "1.25s"
std::string show_rate(double per_s);              // "0", "3.5", "12345"
std::string show_time(std::uint64_t unix_ms);     // "2026-05-01 12:30:05Z"
std::string show_microseconds(std::uint64_t us);  // "850us", "12.5ms", "1.25s"

}  // namespace spdld::ctl
