// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/text_place.h"
#include "op/json_events.h"
#include "op/value.h"
#include "source/table/record_buffer.h"

namespace spdld::source {

// What makes JSON Lines of one list of objects.
inline constexpr std::string_view kListToLines = "jq makes lines: jq -c '.[]' FILE > FILE.jsonl";

// Reads JSON Lines: one object a line, of which some keys are wanted. Empty lines are left out, a
// byte order mark is too. A value is a number, a text, true or false, or a list of numbers, which
// is one of int64 if all of them are integers; or, of a key that is wanted whole, the text of
// whatever stands there.
//
// Errors begin with "file:line:column: ": no JSON, a key that is not there or null though it is not
// optional, or that comes twice, values
// of other kinds, nesting beyond kMaxJsonDepth, what is no UTF-8 or holds NUL. One thread.
class JsonLines : private JsonEvents {
 public:
  struct Cell {
    Value value;              // valid until the next row
    bool huge = false;        // `value` is near an integer, or holds one, that no int64 holds
    std::size_t key_end = 0;  // in the line
    bool absent = false;  // of an optional key: it is null, or not there; all else means nothing
  };
  // A key that is wanted; no two are alike.
  struct Wanted {
    std::string key;
    bool optional = false;
    bool whole = false;
  };

  // `file` is for messages.
  JsonLines(std::string file, std::vector<Wanted> wanted, RecordBuffer records);
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // The next row, a cell for each wanted key in their order. False: there is none.
  Result<bool> next();
  const std::vector<Cell>& cells() const { return cells_; }
  // Where a cell of the last row stands.
  Place place(const Cell& cell) const;

 private:
  struct Key {
    std::uint64_t hash = 0;
    std::size_t end = 0;  // in the line, behind its quote
    std::size_t size = 0;
  };
  // What the texts and lists of a cell lie in.
  struct Room {
    std::string text;
    std::vector<std::int64_t> integers;
    std::vector<double> numbers;
    bool has_fraction = false;
  };

  Next key(std::string_view key) override;
  bool scalar(const JsonScalar& value) override;
  bool begin_object() override;
  bool begin_array() override;
  bool end_object() override;
  bool end_array() override;

  Result<std::string_view> next_line();
  Status parse(std::string_view line);
  Status check_keys();
  Status fail(std::size_t offset, const std::string& message) const;
  std::string_view name(const Key& key) const;
  // Where the value behind a key begins.
  std::size_t value_at(std::size_t key_end) const;
  bool take_plain(std::size_t key_end);
  bool refuse(const std::string& what);
  bool take_element(const JsonScalar& value);
  // Whether what is told is a part of a value that is wanted whole.
  bool is_whole() const { return now_ != SIZE_MAX && wanted_[now_].whole; }
  bool take_whole(const JsonScalar& value);
  void end_whole(std::size_t end);
  bool end_nested();

  const std::string file_;
  const std::vector<Wanted> wanted_;
  std::map<std::string, std::size_t, std::less<>> index_;  // of wanted_
  RecordBuffer records_;
  std::size_t consumed_ = 0;  // of records_, by the last row
  std::string_view line_;
  std::vector<Cell> cells_;
  std::vector<Room> rooms_;

  // While a line is parsed:
  const JsonText* text_ = nullptr;
  bool in_object_ = false;
  std::vector<Key> keys_;
  std::vector<bool> seen_;      // of wanted_
  std::size_t now_ = SIZE_MAX;  // the wanted key whose value comes next or is being read
  bool in_list_ = false;
  std::size_t whole_begin_ = 0;  // in the line: of the value that is wanted whole
  std::size_t whole_depth_ = 0;  // objects and lists of it that are open
  std::string wrong_;            // with the value of now_
};

}  // namespace spdld::source
