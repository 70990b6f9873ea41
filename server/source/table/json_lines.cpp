// SPDX-License-Identifier: Apache-2.0
#include "source/table/json_lines.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/text_place.h"
#include "source/bytes/shown_columns.h"

namespace spdld::source {
namespace {

constexpr std::size_t kUnwanted = SIZE_MAX;
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kToText =
    "; columns hold single values or lists of numbers, and all else as its text, for a loop to "
    "parse: {column: NAME, type: json}";

double nearest(std::string_view digits) {
  double value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

}  // namespace

JsonLines::JsonLines(std::string file, std::vector<Wanted> wanted, RecordBuffer records)
    : file_(std::move(file)),
      wanted_(std::move(wanted)),
      records_(std::move(records)),
      cells_(wanted_.size()),
      rooms_(wanted_.size()) {
  for (std::size_t i = 0; i < wanted_.size(); ++i) index_.emplace(wanted_[i].key, i);
}

Place JsonLines::place(const Cell& cell) const {
  return place_in(line_, value_at(cell.key_end), records_.line());
}

std::size_t JsonLines::value_at(std::size_t key_end) const {
  std::size_t at = line_.find_first_not_of(kSpace, key_end);
  if (at != line_.npos && line_[at] == ':') at = line_.find_first_not_of(kSpace, at + 1);
  return std::min(at, line_.size());
}

Status JsonLines::fail(std::size_t offset, const std::string& message) const {
  return place_in(line_, offset, records_.line()).fail(file_, message);
}

Result<bool> JsonLines::next() {
  while (true) {
    SPDLD_ASSIGN(line_, next_line());
    if (line_.empty()) return false;
    if (line_.find_first_not_of(kSpace) == line_.npos) continue;
    if (const std::size_t bad = find_bad_text(line_); bad != line_.npos) {
      return tl::unexpected(fail(bad, bad_text(line_, bad)));
    }
    SPDLD_TRY(parse(line_));
    return true;
  }
}

// With its line feed; empty: there is none.
Result<std::string_view> JsonLines::next_line() {
  if (keys_.capacity() == 0) {
    keys_.reserve(64);
    if (const Status mark = records_.skip_mark(); !mark.ok()) {
      return tl::unexpected(mark.with_context(file_));
    }
  }
  if (consumed_ != 0) records_.pop(consumed_, 1);
  consumed_ = 0;
  std::size_t searched = 0;
  while (true) {
    const std::string_view view = records_.view();
    const std::size_t feed = view.find('\n', searched);
    if (feed != view.npos) {
      consumed_ = feed + 1;
      return view.substr(0, consumed_);
    }
    searched = view.size();
    if (records_.full()) {
      return tl::unexpected(Place{.line = records_.line()}.fail(
          file_,
          "the line has more than " + std::to_string(RecordBuffer::kMaxRecord >> 20) + " MiB"));
    }
    SPDLD_ASSIGN(const bool more, records_.more());
    if (!more) {
      consumed_ = view.size();
      return records_.view();
    }
  }
}

Status JsonLines::parse(std::string_view line) {
  JsonText text(line);
  text_ = &text;
  in_object_ = false;
  keys_.clear();
  seen_.assign(wanted_.size(), false);
  now_ = kUnwanted;
  in_list_ = false;
  wrong_.clear();
  const std::string broken = parse_json(text, *this);
  text_ = nullptr;
  if (!wrong_.empty()) {
    if (now_ == kUnwanted) return fail(0, wrong_);
    return place(cells_[now_]).fail(file_, shown_text(wanted_[now_].key) + " " + wrong_);
  }
  if (!broken.empty()) {
    const auto read = static_cast<std::size_t>(text.position() - line.data());
    return fail(read == 0 ? 0 : read - 1, broken);
  }
  return check_keys();
}

std::string_view JsonLines::name(const Key& key) const {
  return line_.substr(key.end - 1 - key.size, key.size);
}

Status JsonLines::check_keys() {
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    if (seen_[i]) continue;
    cells_[i].absent = wanted_[i].optional;
    if (cells_[i].absent) continue;
    std::vector<std::string> names;
    for (const Key& key : keys_) names.emplace_back(name(key));
    const std::string what = "the object has no " + missing_table_column(wanted_[i].key, names);
    return fail(0, what + (what.ends_with('?') ? " Or name" : "; name") +
                       " the field under 'optional' if rows need not have it");
  }
  const auto by_hash = [](const Key& a, const Key& b) {
    return a.hash != b.hash ? a.hash < b.hash : a.end < b.end;
  };
  std::sort(keys_.begin(), keys_.end(), by_hash);
  const auto twice = std::adjacent_find(
      keys_.begin(), keys_.end(), [](const Key& a, const Key& b) { return a.hash == b.hash; });
  if (twice == keys_.end()) return {};
  const Key& second = twice[1];
  return fail(second.end - 2 - second.size,
              "the key " + shown_text(name(second)) + " is there twice in one object");
}

bool JsonLines::refuse(const std::string& what) {
  wrong_ = what;
  return false;
}

JsonEvents::Next JsonLines::key(std::string_view key) {
  if (is_whole()) return Next::kRead;
  const auto end = static_cast<std::size_t>(text_->position() - line_.data());
  keys_.push_back({.hash = XXH3_64bits(key.data(), key.size()), .end = end, .size = key.size()});
  const auto found = index_.find(key);
  if (found == index_.end()) return Next::kSkip;
  now_ = found->second;
  cells_[now_].key_end = end;
  cells_[now_].huge = false;
  cells_[now_].absent = false;
  if (seen_[now_]) {
    wrong_ = "is there twice in one object";
    return Next::kStop;
  }
  seen_[now_] = true;
  if (is_whole()) {
    whole_begin_ = value_at(end);
    whole_depth_ = 0;
    return Next::kRead;
  }
  if (!take_plain(end)) return Next::kRead;
  now_ = kUnwanted;
  return Next::kSkip;
}

// Takes the value behind a key if it is what most values are, a text without escapes or an integer:
// that costs a fraction of what the parser takes, to which all others are left.
bool JsonLines::take_plain(std::size_t key_end) {
  std::size_t at = line_.find_first_not_of(kSpace, key_end);
  if (at == line_.npos || line_[at] != ':') return false;
  at = line_.find_first_not_of(kSpace, at + 1);
  if (at == line_.npos) return false;
  const std::string_view value = line_.substr(at);
  if (value[0] == '"') {
    const auto end = std::find_if(value.begin() + 1, value.end(), [](char c) {
      return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
    });
    if (end == value.end() || *end != '"') return false;
    cells_[now_].value = value.substr(1, static_cast<std::size_t>(end - value.begin()) - 1);
    return true;
  }
  std::int64_t integer = 0;
  const auto [end, err] = std::from_chars(value.data(), value.data() + value.size(), integer);
  const auto size = static_cast<std::size_t>(end - value.data());
  const bool leading_zero = value[0] == '0' || value.starts_with("-0");
  if (err != std::errc() || size == value.size() || (leading_zero && size > 1)) return false;
  if (value[size] != ',' && value[size] != '}') return false;
  cells_[now_].value = integer;
  return true;
}

bool JsonLines::take_whole(const JsonScalar& value) {
  if (whole_depth_ > 0) return true;
  if (std::holds_alternative<std::monostate>(value) && wanted_[now_].optional) {
    cells_[now_].absent = true;
    now_ = kUnwanted;
    return true;
  }
  // Where a number ends is known only from what follows it.
  const bool is_text = std::holds_alternative<std::string_view>(value);
  end_whole(is_text ? static_cast<std::size_t>(text_->position() - line_.data())
                    : line_.find_first_of(" \t\r\n,}", whole_begin_));
  return true;
}

void JsonLines::end_whole(std::size_t end) {
  cells_[now_].value = line_.substr(whole_begin_, end - whole_begin_);
  now_ = kUnwanted;
}

bool JsonLines::scalar(const JsonScalar& value) {
  if (is_whole()) return take_whole(value);
  if (!in_object_)
    return refuse("the line holds " + std::string(kind_of(value)) +
                  ", and no object: {\"column\": value, ...}");
  if (in_list_) return take_element(value);
  Cell& cell = cells_[now_];
  Room& room = rooms_[now_];
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    if (text->find('\0') != text->npos) return refuse("holds a NUL character");
    room.text = *text;
    cell.value = std::string_view(room.text);
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    cell.value = *integer;
  } else if (const auto* number = std::get_if<double>(&value)) {
    cell.value = *number;
  } else if (const auto* truth = std::get_if<bool>(&value)) {
    cell.value = *truth;
  } else if (const auto* huge = std::get_if<HugeInteger>(&value)) {
    cell.value = nearest(huge->digits);
    cell.huge = true;
  } else if (wanted_[now_].optional) {
    cell.absent = true;
  } else {
    return refuse(
        "is null; each row needs a value: leave such rows out, or name the field under "
        "'optional'");
  }
  now_ = kUnwanted;
  return true;
}

bool JsonLines::take_element(const JsonScalar& value) {
  Room& room = rooms_[now_];
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    room.integers.push_back(*integer);
    room.numbers.push_back(static_cast<double>(*integer));
  } else if (const auto* number = std::get_if<double>(&value)) {
    room.numbers.push_back(*number);
    room.has_fraction = true;
  } else if (const auto* huge = std::get_if<HugeInteger>(&value)) {
    room.numbers.push_back(nearest(huge->digits));
    room.has_fraction = true;
    cells_[now_].huge = true;
  } else {
    const bool text = std::holds_alternative<std::string_view>(value);
    return refuse("is a list that holds " + std::string(kind_of(value)) + std::string(kToText) +
                  (text ? ". If these are files of the row, each wants a column, which may be "
                          "'optional', or a part of a sample in tar shards"
                        : ""));
  }
  return true;
}

bool JsonLines::begin_object() {
  if (is_whole()) return ++whole_depth_ > 0;
  if (!std::exchange(in_object_, true)) return true;
  return refuse((in_list_ ? "is a list of objects" : "is an object") + std::string(kToText));
}

bool JsonLines::begin_array() {
  if (is_whole()) return ++whole_depth_ > 0;
  if (!in_object_) {
    return refuse(
        "the line holds a list, and no object: {\"column\": value, ...}; of a list of "
        "objects " +
        std::string(kListToLines));
  }
  if (in_list_) return refuse("is a list of lists" + std::string(kToText));
  in_list_ = true;
  Room& room = rooms_[now_];
  room.integers.clear();
  room.numbers.clear();
  room.has_fraction = false;
  return true;
}

bool JsonLines::end_object() { return !is_whole() || end_nested(); }

bool JsonLines::end_nested() {
  if (--whole_depth_ == 0) end_whole(static_cast<std::size_t>(text_->position() - line_.data()));
  return true;
}

bool JsonLines::end_array() {
  if (is_whole()) return end_nested();
  const Room& room = rooms_[now_];
  if (room.has_fraction) {
    cells_[now_].value = std::span<const double>(room.numbers);
  } else {
    cells_[now_].value = std::span<const std::int64_t>(room.integers);
  }
  in_list_ = false;
  now_ = kUnwanted;
  return true;
}

}  // namespace spdld::source
