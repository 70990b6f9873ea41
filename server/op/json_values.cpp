// SPDX-License-Identifier: Apache-2.0
#include "op/json_values.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text/printable.h"
#include "op/json_events.h"

namespace spdld {
namespace {

constexpr std::size_t kShown = 200;

constexpr std::uint64_t bit(std::size_t pointer) { return std::uint64_t{1} << pointer; }

std::string text_of(const std::vector<std::string>& pointer) {
  std::string text;
  for (const std::string& token : pointer) text += "/" + token;
  return "'" + printable(std::string_view(text).substr(0, kShown)) + "'";
}

}  // namespace

// Follows a document and knows which pointers lead into the object or array that it is in.
class JsonFinder final : public JsonEvents {
 public:
  JsonFinder(const JsonText& text, const std::vector<std::vector<std::string>>& pointers,
             JsonValues::Lists lists, std::vector<JsonValues::Found>& found)
      : text_(text), begin_(text.position()), pointers_(pointers), lists_(lists), found_(found) {
    for (std::size_t i = 0; i < pointers.size(); ++i) into_ |= bit(i);
  }

  Next key(std::string_view name) override {
    const std::size_t depth = levels_.size();
    const auto leads_on = [&](std::size_t i) {
      return (into_ & bit(i)) != 0 && pointers_[i][depth - 1] == name;
    };
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      if (!leads_on(i)) continue;
      key_ = name;
      return Next::kRead;
    }
    return Next::kSkip;
  }

  bool scalar(const JsonScalar& value) override {
    const auto* const integer = std::get_if<std::int64_t>(&value);
    const auto* const number = std::get_if<double>(&value);
    const std::uint64_t targets = begin_value();
    const std::uint64_t lists = list_ | inner_;
    const auto* huge = std::get_if<HugeInteger>(&value);
    if (huge != nullptr && (targets | lists) != 0)
      return fail(targets | lists, "is or holds " + printable(huge->digits.substr(0, kShown)),
                  ", which no int64 can be; write it with a point, or as a text");
    if (lists != 0 && integer == nullptr && number == nullptr)
      return fail(lists, "is a list with " + std::string(kind_of(value)) + " in it", kNumbers);
    if (list_ != 0 && !in_inner_ && std::exchange(form_, Form::kFlat) == Form::kNested)
      return fail(list_, "is a list of numbers and of lists", kNumbers);
    ++length_;
    each(lists, [&](Found& at) {
      if (integer != nullptr) at.integers.push_back(*integer);
      if (number != nullptr) at.type = ValueType::kFloat64List;
      at.numbers.push_back(integer != nullptr ? static_cast<double>(*integer) : *number);
    });
    // The parser has looked at the byte behind a number, too.
    const std::size_t behind = integer != nullptr || number != nullptr ? 2 : 1;
    each(targets, [&](Found& at) {
      set(at, value);
      at.offset = offset(behind);
    });
    return true;
  }

  bool begin_object() override {
    if (list_ != 0) return fail(list_ | inner_, "is a list with an object in it", kNumbers);
    const std::uint64_t targets = begin_value();
    if (targets != 0) return fail(targets, "is an object", "; lead to one of its values");
    enter(false);
    return true;
  }
  bool begin_array() override {
    if (list_ != 0 && (lists_ == JsonValues::Lists::kFlat || in_inner_))
      return fail(list_ | inner_, "is a list with a list in it", kNumbers);
    if (list_ != 0 && std::exchange(form_, Form::kNested) == Form::kFlat)
      return fail(list_, "is a list of numbers and of lists", kNumbers);
    in_inner_ = list_ != 0;
    std::uint64_t& begun = in_inner_ ? inner_ : list_;
    begun = begin_value();
    each(begun, [&](Found& at) {
      at.any = true;
      at.offset = offset(1);
      at.type = ValueType::kInt64List;
      at.integers.clear();
      at.numbers.clear();
    });
    if (!in_inner_) {
      form_ = Form::kOpen;
      inner_length_.reset();
    }
    length_ = 0;
    enter(true);
    return true;
  }
  bool end_object() override { return leave(); }
  bool end_array() override {
    if (in_inner_) {
      const std::uint64_t length = inner_length_.value_or(length_);
      if (length != length_)
        return fail(list_,
                    "is a list of lists of " + std::to_string(length) + " and of " +
                        std::to_string(length_) + " numbers",
                    "; lists of one length alone are read");
      inner_length_ = length;
      in_inner_ = false;
      inner_ = 0;
    } else {
      list_ = 0;
    }
    return leave();
  }

  // Why it ended the parse; empty: it did not.
  const std::string& wrong() const { return wrong_; }

 private:
  using Found = JsonValues::Found;

  // Whether a list holds numbers or lists.
  enum class Form { kOpen, kFlat, kNested };

  struct Level {
    std::uint64_t into = 0;  // of the level around it
    bool is_array = false;
    std::uint64_t next = 0;  // of an array: the next value's number
  };

  static constexpr const char* kNumbers = "; lists of numbers alone are read";

  static void set(Found& at, const JsonScalar& value) {
    at.any = true;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      at.type = ValueType::kInt64;
      at.integer = *integer;
    } else if (const auto* number = std::get_if<double>(&value)) {
      at.type = ValueType::kFloat64;
      at.number = *number;
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      at.type = ValueType::kBool;
      at.flag = *flag;
    } else if (const auto* text = std::get_if<std::string_view>(&value)) {
      at.type = ValueType::kText;
      at.text = *text;
    } else {
      at.any = false;  // null
    }
  }

  template <typename Do>
  void each(std::uint64_t pointers, Do what) {
    for (std::size_t i = 0; pointers != 0; ++i, pointers >>= 1) {
      if ((pointers & 1) != 0) what(found_[i]);
    }
  }

  // The pointers that lead to the value that begins; those that lead into it are in next_.
  std::uint64_t begin_value() {
    next_ = 0;
    std::uint64_t targets = 0;
    if (!levels_.empty() && levels_.back().is_array) {
      const std::uint64_t number = levels_.back().next++;
      if (into_ == 0) return 0;
      key_ = std::to_string(number);
    }
    const std::size_t depth = levels_.size();
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      if ((into_ & bit(i)) == 0) continue;
      const std::vector<std::string>& pointer = pointers_[i];
      // The document itself is at depth 0 and has no name.
      if (depth > 0 && pointer[depth - 1] != key_) continue;
      (pointer.size() == depth ? targets : next_) |= bit(i);
    }
    // Of a name that comes again the last one counts, with all that is in it.
    each(next_, [](Found& at) { at.any = false; });
    return targets;
  }
  void enter(bool is_array) {
    levels_.push_back({.into = into_, .is_array = is_array, .next = 0});
    into_ = next_;
  }
  bool leave() {
    into_ = levels_.back().into;
    levels_.pop_back();
    return true;
  }
  bool fail(std::uint64_t targets, const std::string& what, const char* way_out) {
    std::size_t first = 0;
    while ((targets & bit(first)) == 0) ++first;
    wrong_ = "at " + text_of(pointers_[first]) + " " + what + way_out;
    return false;
  }

  std::size_t offset(std::size_t behind) const {
    const auto read = static_cast<std::size_t>(text_.position() - begin_);
    return read - std::min(read, behind);
  }

  const JsonText& text_;
  const char* const begin_;
  const std::vector<std::vector<std::string>>& pointers_;
  const JsonValues::Lists lists_;
  std::vector<Found>& found_;
  std::vector<Level> levels_;
  std::uint64_t into_ = 0;  // pointers that lead into the innermost level
  std::uint64_t next_ = 0;
  std::uint64_t list_ = 0;  // pointers whose list is being read
  Form form_ = Form::kOpen;
  // The list in that list: pointers to it, how long it is by now, and how long those before were.
  bool in_inner_ = false;
  std::uint64_t inner_ = 0;
  std::uint64_t length_ = 0;
  std::optional<std::uint64_t> inner_length_;
  std::string key_;
  std::string wrong_;
};

Result<std::vector<std::string>> json_pointer(std::string_view pointer) {
  const auto invalid = [pointer](const std::string& why) {
    return error(Code::kInvalidArgument,
                 "'" + printable(pointer.substr(0, kShown)) + "' is no JSON pointer: " + why);
  };
  std::vector<std::string> tokens;
  if (pointer.empty()) return tokens;
  if (pointer[0] != '/') return invalid("it begins with a '/', as in /size/0");
  for (std::size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      tokens.emplace_back();
    } else if (pointer[i] != '~') {
      tokens.back() += pointer[i];
    } else if (++i < pointer.size() && (pointer[i] == '0' || pointer[i] == '1')) {
      tokens.back() += pointer[i] == '0' ? '~' : '/';
    } else {
      return invalid("a '~' stands for itself as ~0, and for a '/' as ~1");
    }
  }
  if (tokens.size() > static_cast<std::size_t>(kMaxJsonDepth))
    return invalid("it leads through more than " + std::to_string(kMaxJsonDepth) + " levels");
  return tokens;
}

JsonValues::JsonValues(std::vector<std::vector<std::string>> pointers, Lists lists)
    : pointers_(std::move(pointers)), lists_(lists), found_(pointers_.size()) {
  SPDLD_CHECK(pointers_.size() <= kMaxPointers);
}

Status JsonValues::read(std::string_view document) {
  for (Found& at : found_) at.any = false;
  if (document.size() > kMaxBytes)
    return Status(Code::kInvalidArgument, "has " + std::to_string(document.size()) +
                                              " bytes, and JSON of more than " +
                                              std::to_string(kMaxBytes) + " is not read");
  // Where the parser would take the document to end.
  if (const std::size_t zero = document.find('\0'); zero != std::string_view::npos)
    return Status(Code::kInvalidArgument,
                  "is no JSON: it holds a zero byte (byte " + std::to_string(zero + 1) + ")");
  JsonText text(document);
  JsonFinder finder(text, pointers_, lists_, found_);
  const std::string wrong = parse_json(text, finder);
  if (!finder.wrong().empty()) return Status(Code::kInvalidArgument, finder.wrong());
  if (wrong.empty()) return {};
  const auto at = static_cast<std::size_t>(text.position() - document.data());
  return Status(Code::kInvalidArgument,
                "cannot be read: " + wrong + " (byte " + std::to_string(at) + ")");
}

std::optional<Value> JsonValues::value(std::size_t pointer) const {
  const Found& at = found_[pointer];
  if (!at.any) return std::nullopt;
  switch (at.type) {
    case ValueType::kInt64: return at.integer;
    case ValueType::kFloat64: return at.number;
    case ValueType::kBool: return at.flag;
    case ValueType::kText: return std::string_view(at.text);
    case ValueType::kInt64List: return std::span<const std::int64_t>(at.integers);
    case ValueType::kFloat64List: return std::span<const double>(at.numbers);
  }
  return std::nullopt;
}

std::optional<Value> JsonValues::value(std::size_t pointer, ValueType type) const {
  const Found& at = found_[pointer];
  if (!at.any) return std::nullopt;
  if (at.type == ValueType::kInt64 && type == ValueType::kFloat64)
    return static_cast<double>(at.integer);
  if (at.type == ValueType::kInt64List && type == ValueType::kFloat64List)
    return std::span<const double>(at.numbers);
  return at.type == type ? value(pointer) : std::nullopt;
}

std::uint64_t JsonValues::kept_bytes() const {
  std::uint64_t bytes = 0;
  for (const Found& at : found_)
    bytes += at.text.capacity() + (at.integers.capacity() + at.numbers.capacity()) * 8;
  return bytes;
}

}  // namespace spdld
