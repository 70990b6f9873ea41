// SPDX-License-Identifier: Apache-2.0
#include "source/listing/glob.h"

#include <algorithm>
#include <utility>

namespace spdld::source {
namespace {

constexpr std::size_t kMaxPattern = 4096;
constexpr std::size_t kMaxAlternatives = 256;
constexpr std::size_t kMaxParts = 63;
constexpr std::string_view kAnyDirectories = "**";

Status invalid_glob(std::string_view pattern, const std::string& why) {
  return Status(Code::kInvalidArgument,
                "pattern '" + std::string(pattern.substr(0, 200)) + "': " + why);
}

// Where the part of the pattern at `i` ends that a character is matched against; npos when a '[' or
// a '\' is left open.
std::size_t atom_end(std::string_view pattern, std::size_t i) {
  if (pattern[i] == '\\') return i + 1 < pattern.size() ? i + 2 : std::string_view::npos;
  if (pattern[i] != '[') return i + 1;
  std::size_t end = i + 1;
  if (end < pattern.size() && (pattern[end] == '!' || pattern[end] == '^')) ++end;
  if (end < pattern.size() && pattern[end] == ']') ++end;  // the first one stands for itself
  end = pattern.find(']', end);
  return end == std::string_view::npos ? end : end + 1;
}

// `set` is what stands between the brackets.
bool in_set(std::string_view set, unsigned char c) {
  const bool inverted = set[0] == '!' || set[0] == '^';
  if (inverted) set.remove_prefix(1);
  bool found = false;
  for (std::size_t i = 0; i < set.size(); ++i) {
    const auto low = static_cast<unsigned char>(set[i]);
    auto high = low;
    if (i + 2 < set.size() && set[i + 1] == '-') {
      high = static_cast<unsigned char>(set[i + 2]);
      i += 2;
    }
    found = found || (low <= c && c <= high);
  }
  return found != inverted;
}

bool atom_matches(std::string_view atom, char c) {
  if (atom[0] == '?') return true;
  if (atom[0] == '\\') return atom[1] == c;
  if (atom[0] == '[') return in_set(atom.substr(1, atom.size() - 2), static_cast<unsigned char>(c));
  return atom[0] == c;
}

// Whether names that begin with '.' may match the part.
bool is_hidden(std::string_view part) { return part[0] == '.' || part.starts_with("\\."); }

// One part against one name. After a mismatch it goes on behind the latest '*', which takes one
// character more: the time is bounded by the product of the lengths.
bool part_matches(std::string_view part, std::string_view name) {
  if (!name.empty() && name[0] == '.' && !is_hidden(part)) return false;
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_name = 0;
  while (n < name.size()) {
    if (p < part.size() && part[p] == '*') {
      star = p++;
      star_name = n;
      continue;
    }
    if (p < part.size()) {
      const std::size_t end = atom_end(part, p);
      if (atom_matches(part.substr(p, end - p), name[n])) {
        p = end;
        ++n;
        continue;
      }
    }
    if (star == std::string_view::npos) return false;
    p = star + 1;
    n = ++star_name;
  }
  while (p < part.size() && part[p] == '*') ++p;
  return p == part.size();
}

// Appends the patterns that `pattern` stands for once its braces are resolved, the first pair here
// and the rest by recursion, whose depth the number of braces in a pattern bounds.
Status expand(std::string_view whole, const std::string& pattern, std::vector<std::string>& out) {
  const auto open_brace = [&pattern]() -> std::size_t {
    for (std::size_t i = 0; i < pattern.size();) {
      if (pattern[i] == '{') return i;
      const std::size_t end = atom_end(pattern, i);
      if (end == std::string::npos) return end;
      i = end;
    }
    return std::string::npos;
  };
  const std::size_t open = open_brace();
  if (open == std::string::npos) {
    if (out.size() == kMaxAlternatives) {
      return invalid_glob(whole, "its braces stand for more than 256 patterns");
    }
    out.push_back(pattern);
    return {};
  }
  std::vector<std::pair<std::size_t, std::size_t>> choices;
  int depth = 0;
  std::size_t begin = open + 1;
  std::size_t i = open + 1;
  for (; i < pattern.size(); i = atom_end(pattern, i)) {
    if (atom_end(pattern, i) == std::string::npos) break;
    if (pattern[i] == '{') ++depth;
    if (pattern[i] == '}' && depth-- == 0) break;
    if (pattern[i] == ',' && depth == 0) {
      choices.emplace_back(begin, i);
      begin = i + 1;
    }
  }
  if (i >= pattern.size() || pattern[i] != '}') {
    return invalid_glob(whole, "a '{' is not closed; write \\{ for the character");
  }
  choices.emplace_back(begin, i);
  for (const auto& [from, to] : choices) {
    SPDLD_TRY(expand(
        whole, pattern.substr(0, open) + pattern.substr(from, to - from) + pattern.substr(i + 1),
        out));
  }
  return {};
}

constexpr std::uint64_t bit(std::size_t part) { return std::uint64_t{1} << part; }

}  // namespace

bool Glob::State::dead() const {
  return std::all_of(next.begin(), next.end(), [](std::uint64_t bits) { return bits == 0; });
}

Result<Glob> Glob::parse(std::string_view pattern) {
  if (pattern.empty())
    return tl::unexpected(invalid_glob(pattern, "it is empty; **/* takes all files"));
  if (pattern.size() > kMaxPattern || std::count(pattern.begin(), pattern.end(), '{') > 32) {
    return tl::unexpected(invalid_glob(pattern, "it is too long"));
  }
  if (pattern.find('\0') != std::string_view::npos) {
    return tl::unexpected(invalid_glob(pattern, "no path holds a zero byte"));
  }
  for (std::size_t i = 0; i < pattern.size();) {
    const std::size_t end = atom_end(pattern, i);
    if (end == std::string_view::npos || pattern.substr(i, end - i).find('/', 1) < end - i) {
      return tl::unexpected(invalid_glob(
          pattern, pattern[i] == '[' ? "a '[' is not closed; write \\[ for the character"
                                     : "nothing to stand for itself follows a '\\'"));
    }
    i = end;
  }
  std::vector<std::string> expanded;
  SPDLD_TRY(expand(pattern, std::string(pattern), expanded));

  Glob glob;
  for (const std::string& alternative : expanded) {
    Parts parts;
    for (std::size_t begin = 0; begin <= alternative.size();) {
      const std::size_t end = std::min(alternative.find('/', begin), alternative.size());
      std::string part = alternative.substr(begin, end - begin);
      if (part.empty() || part == "." || part == "..") {
        return tl::unexpected(invalid_glob(
            pattern, "it is relative to the source's root, without empty parts, '.' and '..'"));
      }
      // A ** after a ** adds nothing.
      if (part != kAnyDirectories || parts.empty() || parts.back() != part) {
        parts.push_back(std::move(part));
      }
      begin = end + 1;
    }
    if (parts.back() == kAnyDirectories) parts.emplace_back("*");
    if (parts.size() > kMaxParts) {
      return tl::unexpected(invalid_glob(pattern, "it has more than 63 parts"));
    }
    glob.alternatives_.push_back(std::move(parts));
  }
  return glob;
}

Glob::State Glob::start() const {
  State state;
  for (const Parts& parts : alternatives_) {
    // A ** may stand for no directory at all.
    state.next.push_back(bit(0) | (parts[0] == kAnyDirectories ? bit(1) : 0));
  }
  return state;
}

Glob::State Glob::enter(const State& state, std::string_view name) const {
  State below;
  below.next.resize(alternatives_.size());
  const bool hidden = !name.empty() && name[0] == '.';
  for (std::size_t a = 0; a < alternatives_.size(); ++a) {
    const Parts& parts = alternatives_[a];
    // The last part is for the file.
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if ((state.next[a] & bit(i)) == 0) continue;
      if (parts[i] == kAnyDirectories) {
        if (!hidden) below.next[a] |= bit(i) | bit(i + 1);
      } else if (part_matches(parts[i], name)) {
        below.next[a] |= bit(i + 1);
        if (parts[i + 1] == kAnyDirectories) below.next[a] |= bit(i + 2);
      }
    }
  }
  return below;
}

Glob::State Glob::at(std::string_view directory) const {
  State state = start();
  while (!directory.empty()) {
    const std::size_t slash = std::min(directory.find('/'), directory.size());
    state = enter(state, directory.substr(0, slash));
    directory.remove_prefix(std::min(slash + 1, directory.size()));
  }
  return state;
}

bool Glob::accepts(const State& state, std::string_view name) const {
  for (std::size_t a = 0; a < alternatives_.size(); ++a) {
    const Parts& parts = alternatives_[a];
    if ((state.next[a] & bit(parts.size() - 1)) != 0 && part_matches(parts.back(), name)) {
      return true;
    }
  }
  return false;
}

bool Glob::covers(std::string_view path) const {
  const State state = at(path);
  for (std::size_t a = 0; a < alternatives_.size(); ++a) {
    const Parts& parts = alternatives_[a];
    const std::size_t size = parts.size();
    if (size >= 2 && parts[size - 2] == kAnyDirectories && parts[size - 1] == "*" &&
        (state.next[a] & bit(size - 2)) != 0) {
      return true;
    }
  }
  return false;
}

bool Glob::may_match_hidden() const {
  return std::any_of(alternatives_.begin(), alternatives_.end(), [](const Parts& parts) {
    return std::any_of(parts.begin(), parts.end(), is_hidden);
  });
}

bool Glob::matches(std::string_view path) const {
  State state = start();
  for (std::size_t slash = path.find('/'); slash != std::string_view::npos;
       slash = path.find('/')) {
    state = enter(state, path.substr(0, slash));
    path.remove_prefix(slash + 1);
  }
  return accepts(state, path);
}

}  // namespace spdld::source
