// SPDX-License-Identifier: Apache-2.0
#include "source/table/csv_reader.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/text_place.h"
#include "source/bytes/shown_columns.h"

namespace spdld::source {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

}  // namespace

CsvReader::CsvReader(std::string file, char separator, RecordBuffer records)
    : file_(std::move(file)), separator_(separator), records_(std::move(records)) {}

Place CsvReader::place(std::size_t offset) const { return place_in(view_, offset, line_); }

Status CsvReader::fail(std::size_t offset, const std::string& message) const {
  return place(offset).fail(file_, message);
}

Result<std::vector<std::string>> CsvReader::read_header() {
  if (const Status mark = records_.skip_mark(); !mark.ok()) {
    return tl::unexpected(mark.with_context(file_));
  }
  std::vector<Cell> cells;
  SPDLD_ASSIGN(const bool any, read_record(cells));
  if (!any) {
    return error(Code::kInvalidArgument, file_ + " is empty; its first line must name the columns");
  }
  std::vector<std::string> names;
  std::unordered_set<std::string_view> seen;
  for (const Cell& cell : cells) {
    // Columns without a name, such as an index that was written along, cannot be asked for.
    if (!cell.text.empty() && !seen.insert(cell.text).second) {
      return tl::unexpected(
          fail(cell.offset, "the column " + shown_text(cell.text) +
                                " is named twice; the first line must name each column once"));
    }
    names.emplace_back(cell.text);
  }
  columns_ = names.size();
  return names;
}

Result<bool> CsvReader::next(std::vector<Cell>& cells) {
  SPDLD_ASSIGN(const bool any, read_record(cells));
  if (any && cells.size() < columns_) {
    return tl::unexpected(fail(0, "the row has " + std::to_string(cells.size()) +
                                      " cells, and the first line names " +
                                      std::to_string(columns_) + " columns"));
  }
  return any;
}

Result<bool> CsvReader::read_record(std::vector<Cell>& cells) {
  while (true) {
    const std::string_view last = view_.substr(0, at_);
    records_.pop(last.size(),
                 static_cast<std::uint64_t>(std::count(last.begin(), last.end(), '\n')));
    while (true) {
      view_ = records_.view();
      line_ = records_.line();
      SPDLD_ASSIGN(const Parsed parsed, parse(cells));
      if (parsed == Parsed::kDone) break;
      if (records_.full()) {
        const std::string size = std::to_string(RecordBuffer::kMaxRecord >> 20) + " MiB";
        return tl::unexpected(
            open_quote_ != kNone
                ? fail(open_quote_, "the quote that opens here does not close within " + size)
                : fail(0, "the row has more than " + size));
      }
      SPDLD_ASSIGN(const bool more, records_.more());
      ended_ = !more;
    }
    const std::string_view record = view_.substr(0, at_);
    if (const std::size_t bad = find_bad_text(record); bad != kNone) {
      return tl::unexpected(fail(bad, bad_text(record, bad)));
    }
    if (record.empty()) {
      cells.clear();
      return false;
    }
    const bool is_empty_line = record == "\n" || record == "\r\n" || record == "\r";
    if (!is_empty_line) return true;
  }
}

Result<CsvReader::Parsed> CsvReader::parse(std::vector<Cell>& cells) {
  cells.clear();
  unescaped_.clear();
  open_quote_ = kNone;
  record_ended_ = false;
  at_ = 0;
  if (view_.empty()) {
    record_ended_ = ended_;
    return ended_ ? Parsed::kDone : Parsed::kNeedsMore;
  }
  const std::size_t most = columns_ == 0 ? kMaxColumns : columns_;
  while (!record_ended_) {
    if (cells.size() == most) {
      return tl::unexpected(
          columns_ == 0 ? fail(at_, "more than " + std::to_string(kMaxColumns) + " columns")
                        : fail(at_, "the row has more cells than the first line names columns, " +
                                        std::to_string(columns_)));
    }
    const std::size_t begin = at_;
    const bool quoted = begin < view_.size() && view_[begin] == '"';
    SPDLD_ASSIGN(const Parsed parsed,
                 quoted ? parse_quoted(begin, cells) : parse_plain(begin, cells));
    if (parsed == Parsed::kNeedsMore) return parsed;
  }
  return Parsed::kDone;
}

Result<CsvReader::Parsed> CsvReader::parse_quoted(std::size_t begin, std::vector<Cell>& cells) {
  open_quote_ = begin;
  std::size_t part = begin + 1;
  const std::size_t kept = unescaped_.size();
  bool escaped = false;
  while (true) {
    const std::size_t quote = view_.find('"', part);
    if (quote == kNone) {
      if (!ended_) return Parsed::kNeedsMore;
      return tl::unexpected(fail(begin, "the quote that opens here does not close"));
    }
    if (quote + 1 == view_.size() && !ended_) return Parsed::kNeedsMore;
    const bool twice = quote + 1 < view_.size() && view_[quote + 1] == '"';
    if (!twice && !escaped) {
      cells.push_back({.text = view_.substr(part, quote - part), .offset = begin});
    } else {
      // There is room for the whole record, so that cells before this one stay where they are.
      if (unescaped_.empty()) unescaped_.reserve(view_.size());
      unescaped_.append(view_.substr(part, quote - part + (twice ? 1 : 0)));
      escaped = true;
      if (!twice) {
        cells.push_back({.text = std::string_view(unescaped_).substr(kept), .offset = begin});
      }
    }
    if (!twice) {
      open_quote_ = kNone;
      return end_cell(quote + 1);
    }
    part = quote + 2;
  }
}

Result<CsvReader::Parsed> CsvReader::parse_plain(std::size_t begin, std::vector<Cell>& cells) {
  std::size_t end = begin;
  for (; end < view_.size(); ++end) {
    const char c = view_[end];
    if (c == separator_ || c == '\n' || c == '\r') break;
    if (c == '"' && separator_ != '\t') {
      return tl::unexpected(
          fail(end,
               "a quote within a cell that does not begin with one; put the cell in quotes, and "
               "write those within it twice"));
    }
  }
  if (end == view_.size() && !ended_) return Parsed::kNeedsMore;
  cells.push_back({.text = view_.substr(begin, end - begin), .offset = begin});
  return end_cell(end);
}

// A cell ends before `at`: there the next one begins, or the record ends.
Result<CsvReader::Parsed> CsvReader::end_cell(std::size_t at) {
  record_ended_ = true;
  at_ = at;
  if (at == view_.size()) return ended_ ? Parsed::kDone : Parsed::kNeedsMore;
  const char c = view_[at];
  ++at_;
  if (c == '\n') return Parsed::kDone;
  if (c == separator_) {
    record_ended_ = false;
    return Parsed::kDone;
  }
  if (c != '\r') {
    return tl::unexpected(fail(
        at, "text behind the quote that closes the cell; within a cell a quote is written twice"));
  }
  if (at_ == view_.size()) return ended_ ? Parsed::kDone : Parsed::kNeedsMore;
  if (view_[at_] != '\n') {
    return tl::unexpected(fail(at,
                               "a carriage return that no line feed follows; lines end with "
                               "LF or CRLF, and a cell that holds one stands in quotes"));
  }
  ++at_;
  return Parsed::kDone;
}

}  // namespace spdld::source
