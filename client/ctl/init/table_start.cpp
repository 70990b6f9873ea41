// SPDX-License-Identifier: Apache-2.0
#include "ctl/init/table_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/text/foreign_names.h"
#include "base/text/printable.h"
#include "ctl/failure.h"

namespace spdld::ctl {
namespace {

using Json = nlohmann::ordered_json;  // columns in the order of the file

constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxRows = 100;

std::string read_start(const std::string& path, bool& whole) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Failure(kWrongUsage, fmt::format("cannot open {}: {}", printable(path),
                                           std::generic_category().message(errno)));
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  whole = text.size() <= kMaxBytes;
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  return text;
}

// One record, from `at` on, which then stands behind its line's end. Quotes as RFC 4180 has them;
// whether all is well with them the daemon will say.
std::vector<std::string> read_record(std::string_view text, std::size_t& at, char separator) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' && (quoted || cells.back().empty())) {
      if (quoted && at + 1 < text.size() && text[at + 1] == '"') {
        cells.back() += '"';
        ++at;
      } else {
        quoted = !quoted;
      }
    } else if (!quoted && c == separator) {
      cells.emplace_back();
    } else if (!quoted && c == '\n') {
      ++at;
      break;
    } else if (quoted || c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

std::size_t read_csv(const std::string& path, std::string_view text, bool whole,
                     TableStart& table) {
  const char separator = path.ends_with(".tsv") ? '\t' : ',';
  std::size_t at = 0;
  for (std::string& name : read_record(text, at, separator))
    table.columns.push_back({.name = std::move(name), .cells = {}});
  const std::size_t begin = at;
  std::size_t end = at;
  while (at < text.size() && table.rows < kMaxRows) {
    const std::vector<std::string> cells = read_record(text, at, separator);
    // What the end of the text cuts off is no row.
    if (at == text.size() && !whole) break;
    end = at;
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (cells.size() != table.columns.size()) {
      std::vector<std::string> names;
      for (const TableStart::Column& column : table.columns) names.push_back(column.name);
      const ForeignFormat* const foreign = foreign_table(names);
      fail_of_file(path, fmt::format("has {} columns in its first line and {} in row {}; {}",
                                     table.columns.size(), cells.size(), table.rows + 1,
                                     foreign != nullptr ? "it is " + described(*foreign)
                                                        : "is it the table that its ending says?"));
    }
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i].empty()) table.columns[i].cells.emplace_back(cells[i]);
    }
    ++table.rows;
  }
  table.whole = whole && end == text.size();
  return end - begin;
}

// The one of this name, which is added if there is none.
TableStart::Column& column_of(TableStart& table, const std::string& name) {
  const auto found =
      std::find_if(table.columns.begin(), table.columns.end(),
                   [&](const TableStart::Column& column) { return column.name == name; });
  if (found != table.columns.end()) return *found;
  return table.columns.emplace_back(TableStart::Column{.name = name, .cells = {}});
}

std::size_t read_json_lines(const std::string& path, std::string_view text, bool whole,
                            TableStart& table) {
  std::size_t at = 0;
  while (at < text.size() && table.rows < kMaxRows) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos && !whole) break;
    const std::string_view line = text.substr(at, end == std::string_view::npos ? end : end - at);
    at += line.size() + (end == std::string_view::npos ? 0 : 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json row = Json::parse(line, nullptr, false);
    if (!row.is_object())
      fail_of_file(path,
                   fmt::format("has no object in row {}: each line of a .jsonl is one, such as "
                               "{{\"image\": \"a.jpg\", \"caption\": \"a cat\"}}",
                               table.rows + 1));
    for (const auto& [name, value] : row.items()) {
      TableStart::Column& column = column_of(table, name);
      if (!value.is_null()) column.cells.push_back(value);
    }
    ++table.rows;
  }
  table.whole = whole && at == text.size();
  return at;
}

}  // namespace

TableStart read_table_start(const std::string& path) {
  bool whole = false;
  const std::string text = read_start(path, whole);
  TableStart table;
  const bool lines = path.ends_with(".jsonl");
  const std::size_t bytes =
      lines ? read_json_lines(path, text, whole, table) : read_csv(path, text, whole, table);
  if (table.rows == 0)
    fail_of_file(path, text.empty() ? "is empty"
                       : lines      ? "has no row that ends within 4 MiB"
                                    : "has no row behind the line that names the columns");
  table.about_rows = table.rows;
  if (!table.whole) {
    std::error_code failure;
    const auto size = std::filesystem::file_size(path, failure);
    if (!failure) table.about_rows = size / std::max<std::uint64_t>(bytes / table.rows, 1);
  }
  return table;
}

}  // namespace spdld::ctl
