// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/read_some.h"
#include "base/status.h"
#include "base/text_place.h"

namespace spdld {

// An integer that no int64 holds, as it stands in the text.
struct HugeInteger {
  std::string_view digits;
};

// One value of a JSON text that is no object and no array; monostate is null. Texts are valid for
// the call that they come with.
using JsonScalar =
    std::variant<std::monostate, bool, std::int64_t, double, HugeInteger, std::string_view>;

// "null", "true or false", "an integer", "a number", "a text"
std::string_view kind_of(const JsonScalar& value);

// Told what a JSON text holds, in its order. A call that returns false, or kStop, ends the parse.
class JsonEvents {
 public:
  enum class Next {
    kRead,  // the key's value
    kSkip,  // it: no call comes for it, and of its grammar only strings and brackets are looked at
    kStop,
  };

  virtual ~JsonEvents() = default;

  virtual Next key(std::string_view key) = 0;
  virtual bool scalar(const JsonScalar& value) = 0;
  virtual bool begin_object() = 0;
  virtual bool begin_array() = 0;
  virtual bool end_object() = 0;
  virtual bool end_array() = 0;
};

// The bytes of a JSON text, and how far they have been read. One thread.
class JsonText {
 public:
  // All of it lies in memory.
  explicit JsonText(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}
  // It is read part by part. A single key, text or number may have `max_token` bytes.
  JsonText(ReadSome read, std::size_t max_token);

  // Whether there is a next byte; reading may have failed.
  bool has_next() { return at_ != end_ || refill(); }
  const char& next() const { return *at_; }
  void advance() { ++at_; }
  // The first byte that has not been read; for a text in memory.
  const char* position() const { return skipped_to_ != nullptr ? skipped_to_ : at_; }
  // The last byte that was read; for one that is read part by part.
  Place place() const;
  // What ended the text before its end, if anything did.
  const Status& status() const { return status_; }
  // A token has ended here.
  void mark_token() {
    token_bytes_ = 0;
    token_begin_ = position();
  }
  // Behind a key: has the colon and the value that follow read as ": null". What is no value is
  // left as it is. Returns how many objects and arrays were nested in each other, or as soon as
  // they are more than `max_depth`.
  int skip_value(int max_depth);

 private:
  bool refill();
  void skip_space();
  void skip_string();

  const char* at_ = nullptr;
  const char* end_ = nullptr;
  // While what stands for a skipped value is read: where it goes on behind that one.
  const char* skipped_to_ = nullptr;
  const char* skipped_end_ = nullptr;
  ReadSome read_;
  std::vector<char> part_;
  const char* token_begin_ = nullptr;  // in part_
  std::size_t token_bytes_ = 0;        // of the current token, before part_
  std::size_t max_token_ = 0;
  std::uint64_t lines_ = 0;         // line feeds before part_
  std::uint64_t line_columns_ = 0;  // characters since the last of them, before part_
  Status status_;
};

constexpr int kMaxJsonDepth = 64;

// Tells `events` all of `text`, which holds one value and nothing behind it. Empty: it is JSON, or
// `events` ended it, or reading did. Else what is wrong behind what `text` has read by then:
// objects and arrays nested deeper than kMaxJsonDepth are, too.
std::string parse_json(JsonText& text, JsonEvents& events);

}  // namespace spdld
