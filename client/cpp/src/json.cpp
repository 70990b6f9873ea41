// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace spdld::client {

// Walks over a text once, without going back. Every method is false, or nothing, where the text is
// no JSON.
class JsonReader {
 public:
  using Value = JsonObject::Value;

  explicit JsonReader(std::string_view text) : rest_(text) {}

  bool object(std::map<std::string, Value>& out, int depth) {
    if (depth > kMaxDepth || !take('{')) return false;
    if (take('}')) return true;
    do {
      auto name = string();
      if (!name || !take(':')) return false;
      auto found = value(depth);
      if (!found) return false;
      out.insert_or_assign(std::move(*name), std::move(*found));
    } while (take(','));
    return take('}');
  }

  bool at_end() {
    skip_space();
    return rest_.empty();
  }

 private:
  static constexpr int kMaxDepth = 16;

  std::optional<Value> value(int depth) {
    skip_space();
    if (rest_.empty()) return std::nullopt;
    switch (rest_.front()) {
      case '"': {
        auto text = string();
        if (!text) return std::nullopt;
        return Value(std::move(*text));
      }
      case '{': {
        std::map<std::string, Value> inner;
        if (!object(inner, depth + 1)) return std::nullopt;
        return Value();
      }
      case '[':
        if (!list(depth + 1)) return std::nullopt;
        return Value();
      default: break;
    }
    if (word("true")) return Value(true);
    if (word("false")) return Value(false);
    if (word("null")) return Value();
    return number();
  }

  bool list(int depth) {
    if (depth > kMaxDepth || !take('[')) return false;
    if (take(']')) return true;
    do {
      if (!value(depth)) return false;
    } while (take(','));
    return take(']');
  }

  std::optional<Value> number() {
    const std::size_t length = rest_.find_first_not_of("+-.0123456789eE");
    const std::string_view text = rest_.substr(0, length);
    const char* const end = text.data() + text.size();
    if (text.find_first_of("0123456789") == std::string_view::npos) return std::nullopt;
    rest_.remove_prefix(text.size());
    std::uint64_t whole = 0;
    const auto [whole_end, no_whole] = std::from_chars(text.data(), end, whole);
    if (no_whole != std::errc{} || whole_end != end) return Value();
    return Value(whole);
  }

  std::optional<std::string> string() {
    if (!take('"')) return std::nullopt;
    std::string out;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) return std::nullopt;
      if (c != '\\') {
        out += c;
      } else if (!escape(out)) {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  bool escape(std::string& out) {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    switch (c) {
      case '"':
      case '\\':
      case '/': out += c; return true;
      case 'b': out += '\b'; return true;
      case 'f': out += '\f'; return true;
      case 'n': out += '\n'; return true;
      case 'r': out += '\r'; return true;
      case 't': out += '\t'; return true;
      case 'u': break;
      default: return false;
    }
    auto point = code_unit();
    if (!point) return false;
    if (*point >= 0xd800 && *point < 0xdc00) {  // the first half of a pair
      if (rest_.substr(0, 2) != "\\u") return false;
      rest_.remove_prefix(2);
      const auto low = code_unit();
      if (!low || *low < 0xdc00 || *low >= 0xe000) return false;
      *point = 0x10000 + ((*point - 0xd800) << 10) + (*low - 0xdc00);
    } else if (*point >= 0xdc00 && *point < 0xe000) {
      return false;
    }
    append_utf8(out, *point);
    return true;
  }

  std::optional<std::uint32_t> code_unit() {
    if (rest_.size() < 4) return std::nullopt;
    std::uint32_t unit = 0;
    const auto [end, failed] = std::from_chars(rest_.data(), rest_.data() + 4, unit, 16);
    if (failed != std::errc{} || end != rest_.data() + 4) return std::nullopt;
    rest_.remove_prefix(4);
    return unit;
  }

  static void append_utf8(std::string& out, std::uint32_t point) {
    const auto add = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    const auto tail = [&](int shift) { add(0x80 | (point >> shift & 0x3f)); };
    if (point < 0x80) return add(point);
    if (point < 0x800) {
      add(0xc0 | point >> 6);
    } else if (point < 0x10000) {
      add(0xe0 | point >> 12);
      tail(6);
    } else {
      add(0xf0 | point >> 18);
      tail(12);
      tail(6);
    }
    tail(0);
  }

  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool take(char wanted) {
    skip_space();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view wanted) {
    if (rest_.substr(0, wanted.size()) != wanted) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }

  std::string_view rest_;
};

std::optional<JsonObject> JsonObject::parse(std::string_view text) {
  JsonObject object;
  JsonReader reader(text);
  if (!reader.object(object.values_, 0) || !reader.at_end()) return std::nullopt;
  return object;
}

std::optional<std::uint64_t> JsonObject::count(const std::string& name) const {
  return get<std::uint64_t>(name);
}
std::optional<bool> JsonObject::flag(const std::string& name) const { return get<bool>(name); }
std::optional<std::string> JsonObject::text(const std::string& name) const {
  return get<std::string>(name);
}

}  // namespace spdld::client
