// SPDX-License-Identifier: Apache-2.0
#include "source/tar/brace_expansion.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "base/text/printable.h"

namespace spdld::source {
namespace {

constexpr std::size_t kMaxBraced = 4096;
constexpr std::size_t kMaxBraces = 32;
constexpr std::size_t kMaxDigits = 18;
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;  // of all that comes out
constexpr std::size_t kShownBraced = 200;

std::string shown_braced(std::string_view pattern) {
  return "'" + printable(pattern.substr(0, kShownBraced)) + "'";
}

struct Braces {
  std::size_t begin = 0;  // of the brace that opens
  std::size_t end = 0;    // behind the one that closes
  // What stands between braces and commas.
  std::vector<std::string_view> choices;
};

// What lies between two ends, both included.
struct Sequence {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t step = 1;  // > 0
  int width = 0;
  bool letters = false;

  std::uint64_t size() const {
    return static_cast<std::uint64_t>(std::abs(last - first)) / static_cast<std::uint64_t>(step) +
           1;
  }
  std::string at(std::uint64_t i) const {
    const auto moved = static_cast<std::int64_t>(i) * step;
    const std::int64_t value = last < first ? first - moved : first + moved;
    if (letters) return {static_cast<char>(value)};
    std::string digits = std::to_string(std::abs(value));
    const bool negative = value < 0;
    const auto wanted = static_cast<std::size_t>(std::max(width - (negative ? 1 : 0), 0));
    if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
    return (negative ? "-" : "") + digits;
  }
};

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  if (failed != std::errc() || at != end || text.empty() || text.size() > kMaxDigits)
    return std::nullopt;
  return value;
}

// A number that begins with a zero and has more digits.
bool is_padded(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0';
}

bool is_letter(std::string_view text) {
  return text.size() == 1 &&
         ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
}

// `text` stands between two braces and holds no comma.
std::optional<Sequence> sequence(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const std::string_view first = text.substr(0, dots);
  std::string_view last = text.substr(dots + 2);
  Sequence between;
  if (const std::size_t more = last.find(".."); more != std::string_view::npos) {
    const auto step = number(last.substr(more + 2));
    if (!step) return std::nullopt;
    between.step = std::max<std::int64_t>(std::abs(*step), 1);
    last = last.substr(0, more);
  }
  if (is_letter(first) && is_letter(last)) {
    between.first = static_cast<unsigned char>(first[0]);
    between.last = static_cast<unsigned char>(last[0]);
    between.letters = true;
    return between;
  }
  const auto low = number(first);
  const auto high = number(last);
  if (!low || !high) return std::nullopt;
  between.first = *low;
  between.last = *high;
  if (is_padded(first) || is_padded(last))
    between.width = static_cast<int>(std::max(first.size(), last.size()));
  return between;
}

// The braces that open at `open`; nothing: they are not closed.
std::optional<Braces> braces_at(std::string_view pattern, std::size_t open) {
  Braces found{.begin = open, .end = 0, .choices = {}};
  int depth = 0;
  std::size_t begin = open + 1;
  for (std::size_t i = begin; i < pattern.size(); i = pattern_atom_end(pattern, i)) {
    const char c = pattern[i];
    if (c == '{') ++depth;
    if (depth == 0 && (c == ',' || c == '}')) {
      found.choices.push_back(pattern.substr(begin, i - begin));
      begin = i + 1;
    }
    if (c != '}') continue;
    if (depth-- > 0) continue;
    found.end = i + 1;
    return found;
  }
  return std::nullopt;
}

class Expander {
 public:
  Expander(std::string_view whole, std::size_t max, std::vector<std::string>& out)
      : whole_(whole), max_(max), out_(out) {}

  // Expands the first braces of `rest` here and the others by recursion, whose depth their number
  // bounds; `done` is what comes before.
  Status expand(const std::string& done, std::string_view rest) {
    for (std::size_t i = 0; i < rest.size(); i = pattern_atom_end(rest, i)) {
      if (rest[i] != '{') continue;
      const std::optional<Braces> braces = braces_at(rest, i);
      if (!braces)
        return Status(Code::kInvalidArgument,
                      shown_braced(whole_) + ": a '{' is not closed; write \\{ for the character");
      const std::string before = done + std::string(rest.substr(0, i));
      const std::string_view behind = rest.substr(braces->end);
      if (braces->choices.size() > 1) {
        for (const std::string_view choice : braces->choices)
          SPDLD_TRY(expand(before, std::string(choice) + std::string(behind)));
        return {};
      }
      const std::optional<Sequence> between = sequence(braces->choices[0]);
      if (!between) continue;
      // Each stands for one pattern at least.
      if (between->size() > max_ - out_.size()) return too_many();
      for (std::uint64_t n = 0; n < between->size(); ++n)
        SPDLD_TRY(expand(before + between->at(n), behind));
      return {};
    }
    bytes_ += done.size() + rest.size();
    if (out_.size() >= max_ || bytes_ > kMaxBytes) return too_many();
    out_.push_back(done + std::string(rest));
    return {};
  }

 private:
  Status too_many() const {
    return Status(Code::kResourceExhausted,
                  shown_braced(whole_) + " stands for more than the " + std::to_string(max_) +
                      " shards that a source may have, or for more than " +
                      std::to_string(kMaxBytes >> 20) + " MiB of names");
  }

  const std::string_view whole_;
  const std::size_t max_;
  std::vector<std::string>& out_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::size_t pattern_atom_end(std::string_view pattern, std::size_t i) {
  if (pattern[i] == '\\') return std::min(i + 2, pattern.size());
  if (pattern[i] != '[') return i + 1;
  std::size_t end = i + 1;
  if (end < pattern.size() && (pattern[end] == '!' || pattern[end] == '^')) ++end;
  if (end < pattern.size() && pattern[end] == ']') ++end;  // the first one stands for itself
  end = pattern.find(']', end);
  return end == std::string_view::npos ? i + 1 : end + 1;
}

Status expand_braces(std::string_view pattern, std::size_t max, std::vector<std::string>& out) {
  if (pattern.size() > kMaxBraced ||
      static_cast<std::size_t>(std::count(pattern.begin(), pattern.end(), '{')) > kMaxBraces)
    return Status(Code::kInvalidArgument, shown_braced(pattern) + "... is too long for a pattern");
  return Expander(pattern, max, out).expand("", pattern);
}

}  // namespace spdld::source
