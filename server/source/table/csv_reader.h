// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/text_place.h"
#include "source/table/record_buffer.h"

namespace spdld::source {

// Reads CSV as RFC 4180 has it: cells in quotes may hold separators, line feeds, and quotes written
// twice; lines end with LF or CRLF; the first line names the columns. Empty lines are left out, a
// byte order mark is too. With '\t' as separator a quote within a cell that does not begin with one
// is a character like others, since tab-separated files are often written without quoting.
//
// Errors begin with "file:line:column: ": quotes that do not close, or close before the cell ends;
// rows of unequal length; names that come twice; what is no UTF-8. One thread.
class CsvReader {
 public:
  static constexpr std::size_t kMaxColumns = 65536;

  struct Cell {
    std::string_view text;   // without the quotes
    std::size_t offset = 0;  // of the cell in its record
  };

  // `file` is for messages.
  CsvReader(std::string file, char separator, RecordBuffer records);

  // The names of the columns; called once, before all else.
  Result<std::vector<std::string>> read_header();
  // The next row, as many cells as there are columns, valid until the next call. False: there is
  // none; then `cells` is empty.
  Result<bool> next(std::vector<Cell>& cells);
  // Where a cell of the last row stands.
  Place place(const Cell& cell) const { return place(cell.offset); }

 private:
  enum class Parsed { kDone, kNeedsMore };

  Place place(std::size_t offset) const;
  Status fail(std::size_t offset, const std::string& message) const;
  Result<bool> read_record(std::vector<Cell>& cells);
  Result<Parsed> parse(std::vector<Cell>& cells);
  Result<Parsed> parse_quoted(std::size_t begin, std::vector<Cell>& cells);
  Result<Parsed> parse_plain(std::size_t begin, std::vector<Cell>& cells);
  Result<Parsed> end_cell(std::size_t at);

  const std::string file_;
  const char separator_;
  RecordBuffer records_;
  std::size_t columns_ = 0;  // 0: the header is yet to come
  std::string_view view_;    // of records_, while a record is parsed and until the next one is
  std::uint64_t line_ = 1;   // on which view_ begins
  std::size_t at_ = 0;       // how far parse() has come in view_
  bool record_ended_ = false;
  bool ended_ = false;  // view_ is all that is left
  std::size_t open_quote_ = std::string_view::npos;
  std::string unescaped_;  // cells of the record with quotes written twice
};

}  // namespace spdld::source
