// SPDX-License-Identifier: Apache-2.0
#include "op/json_events.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/printable.h"
#include "base/text/utf8.h"

namespace spdld {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kPart = std::size_t{256} << 10;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::uint64_t characters(const char* begin, const char* end) {
  return static_cast<std::uint64_t>(std::count_if(
      begin, end, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// What the library's parser reads from: it compares with the end before each byte.
class Bytes {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the standard library's names
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  // NOLINTEND(readability-identifier-naming)

  Bytes() = default;
  explicit Bytes(JsonText& text) : text_(&text) {}

  reference operator*() const { return text_->next(); }
  Bytes& operator++() {
    text_->advance();
    return *this;
  }
  Bytes operator++(int) {
    const Bytes before = *this;
    text_->advance();
    return before;
  }
  // Only ever compared with the end.
  friend bool operator==(const Bytes& a, const Bytes& b) {
    JsonText* const text = a.text_ != nullptr ? a.text_ : b.text_;
    return text == nullptr || !text->has_next();
  }
  friend bool operator!=(const Bytes& a, const Bytes& b) { return !(a == b); }

 private:
  JsonText* text_ = nullptr;
};

class Teller {
 public:
  Teller(JsonText& text, JsonEvents& events) : text_(text), events_(events) {}

  std::string wrong() && { return std::move(wrong_); }

  bool null() {
    if (!std::exchange(skipped_, false)) return scalar(std::monostate{});
    text_.mark_token();
    return true;
  }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(Json::number_integer_t value) { return scalar(value); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) {
      const std::string digits = std::to_string(value);
      return scalar(HugeInteger{digits});
    }
    return scalar(static_cast<std::int64_t>(value));
  }
  bool number_float(Json::number_float_t value, const std::string& token) {
    // The library makes floats of integers that are too large for it.
    if (token.find_first_of(".eE") == std::string::npos) return scalar(HugeInteger{token});
    return scalar(value);
  }
  bool string(std::string& value) { return scalar(std::string_view(value)); }
  bool binary(Json::binary_t&) { return false; }  // JSON has none

  bool key(std::string& key) {
    text_.mark_token();
    const JsonEvents::Next next = events_.key(key);
    if (next != JsonEvents::Next::kSkip) return next == JsonEvents::Next::kRead;
    skipped_ = true;
    return depth_ + text_.skip_value(kMaxJsonDepth - depth_) <= kMaxJsonDepth || too_deep();
  }
  bool start_object(std::size_t) { return deeper() && events_.begin_object(); }
  bool start_array(std::size_t) { return deeper() && events_.begin_array(); }
  bool end_object() {
    text_.mark_token();
    --depth_;
    return events_.end_object();
  }
  bool end_array() {
    text_.mark_token();
    --depth_;
    return events_.end_array();
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    if (!text_.status().ok()) return false;
    // "[json.exception.parse_error.101] parse error at line 1, column 5: what is wrong", or without
    // a place.
    const std::string_view what = error.what();
    const std::size_t colon = what.find(": ");
    const std::size_t begin = colon == what.npos ? what.find("] ") : colon;
    wrong_ = "this is no JSON: " +
             printable(cut(begin == what.npos ? what : what.substr(begin + 2), 200));
    return false;
  }

 private:
  bool scalar(const JsonScalar& value) {
    text_.mark_token();
    return events_.scalar(value);
  }
  bool deeper() {
    text_.mark_token();
    return ++depth_ <= kMaxJsonDepth || too_deep();
  }
  bool too_deep() {
    wrong_ = "objects and arrays are nested deeper than " + std::to_string(kMaxJsonDepth);
    return false;
  }

  JsonText& text_;
  JsonEvents& events_;
  int depth_ = 0;
  bool skipped_ = false;  // the value that comes next
  std::string wrong_;
};

}  // namespace

std::string_view kind_of(const JsonScalar& value) {
  constexpr std::string_view kKinds[] = {"null",     "true or false",        "an integer",
                                         "a number", "an integer too large", "a text"};
  return kKinds[value.index()];
}

JsonText::JsonText(ReadSome read, std::size_t max_token)
    : read_(std::move(read)), part_(kPart), max_token_(max_token) {
  at_ = end_ = token_begin_ = part_.data();
}

bool JsonText::refill() {
  if (skipped_to_ != nullptr) {
    at_ = std::exchange(skipped_to_, nullptr);
    end_ = skipped_end_;
    if (at_ != end_) return true;
  }
  if (!read_ || !status_.ok()) return false;
  token_bytes_ += static_cast<std::size_t>(end_ - token_begin_);
  if (token_bytes_ > max_token_) {
    status_ = Status(Code::kInvalidArgument, "a single key, text or number has more than " +
                                                 std::to_string(max_token_ >> 20) + " MiB");
    return false;
  }
  const char* const begin = part_.data();
  lines_ += static_cast<std::uint64_t>(std::count(begin, end_, '\n'));
  const auto feed = std::find(std::reverse_iterator(end_), std::reverse_iterator(begin), '\n');
  if (feed.base() != begin) line_columns_ = 0;
  line_columns_ += characters(feed.base(), end_);
  at_ = end_ = token_begin_ = begin;
  Result<std::size_t> count = read_(part_);
  if (!count) {
    status_ = std::move(count).error();
    return false;
  }
  end_ = begin + *count;
  return *count != 0;
}

void JsonText::skip_space() {
  while (has_next() && is_space(*at_)) advance();
}

// Behind the quote that opens it.
void JsonText::skip_string() {
  while (has_next()) {
    const char* const stop = std::find_if(at_, end_, [](char c) { return c == '"' || c == '\\'; });
    at_ = stop;
    if (at_ == end_) continue;
    advance();
    if (*stop == '"') return;
    if (has_next()) advance();  // whatever is escaped
  }
}

int JsonText::skip_value(int max_depth) {
  constexpr std::string_view kNull = ":null";
  skip_space();
  if (!has_next() || *at_ != ':') return 0;
  advance();
  skip_space();
  int depth = 0;
  int deepest = 0;
  bool any = false;
  // A value ends with the bracket that closes it, or before what can stand in no number or word.
  while (has_next() && deepest <= max_depth) {
    mark_token();
    const char c = *at_;
    if (depth == 0 && (c == ',' || c == ']' || c == '}' || is_space(c))) break;
    any = true;
    advance();
    if (c == '"') skip_string();
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
    if (depth == 0 && (c == '"' || c == ']' || c == '}')) break;
  }
  skipped_to_ = at_;
  skipped_end_ = end_;
  at_ = kNull.data();
  end_ = at_ + (any ? kNull.size() : 1);
  return deepest;
}

Place JsonText::place() const {
  const char* const begin = part_.data();
  const std::string_view read(begin, static_cast<std::size_t>(position() - begin));
  const Place inside = place_in(read, read.size(), lines_ + 1);
  // The place behind the last byte, less one.
  const std::uint64_t before = inside.line == lines_ + 1 ? line_columns_ : 0;
  return {.line = inside.line, .column = std::max<std::uint64_t>(1, inside.column + before - 1)};
}

std::string parse_json(JsonText& text, JsonEvents& events) {
  Teller teller(text, events);
  Json::sax_parse(Bytes(text), Bytes(), &teller);
  return std::move(teller).wrong();
}

}  // namespace spdld
