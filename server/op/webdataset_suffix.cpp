// SPDX-License-Identifier: Apache-2.0
#include "op/webdataset_suffix.h"

#include <algorithm>
#include <array>

#include "base/text/ascii.h"
#include "base/text/printable.h"

namespace spdld {
namespace {

constexpr std::size_t kMaxSuffix = 255;

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Status invalid(std::string_view suffix, const std::string& why) {
  return Status(Code::kInvalidArgument, "'" + printable(suffix.substr(0, kMaxSuffix)) + "' " + why);
}

// What is wrong with the spelling of a suffix.
Status check_spelling(std::string_view suffix) {
  if (suffix.empty()) return invalid(suffix, "is no suffix; write one such as jpg");
  if (suffix.size() > kMaxSuffix)
    return invalid(suffix, "... is longer than the 255 bytes of a suffix");
  if (suffix.front() == '.') return invalid(suffix, "begins with a dot; write it without");
  const auto is_wrong = [](unsigned char c) { return c <= ' ' || c == 0x7F || c == '/'; };
  if (std::any_of(suffix.begin(), suffix.end(), is_wrong))
    return invalid(suffix, "is no suffix: it is what follows the first dot of a file's name");
  return {};
}

}  // namespace

Result<SuffixKind> suffix_kind(std::string_view suffix) {
  constexpr std::array<std::string_view, 5> kPickles{"pyd", "pickle", "pkl", "pth", "pt"};
  constexpr std::array<std::string_view, 4> kIntegers{"count", "index", "inx", "id"};
  constexpr std::array<std::string_view, 3> kClasses{"cls", "cls2", "class"};
  const std::string_view last = suffix.substr(suffix.rfind('.') + 1);
  if (is_one_of(last, kPickles)) {
    return tl::unexpected(invalid(
        suffix, "is refused: it is a pickle, and unpickling runs code; store it as npy or json"));
  }
  if (last == "ten") {
    return tl::unexpected(
        invalid(suffix, "is not read: it is WebDataset's own tensor format; store it as npy"));
  }
  if (is_one_of(last, kIntegers)) return SuffixKind::kInteger;
  if (is_one_of(last, kClasses)) return SuffixKind::kClass;
  return SuffixKind::kBytes;
}

Result<std::vector<std::string>> split_suffixes(std::string_view text) {
  std::vector<std::string> suffixes;
  SuffixKind first = SuffixKind::kBytes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    std::string suffix = lower_case(text.substr(begin, end - begin));
    SPDLD_TRY(check_spelling(suffix));
    SPDLD_ASSIGN(const SuffixKind kind, suffix_kind(suffix));
    if (suffixes.empty()) first = kind;
    if (kind != first) {
      return tl::unexpected(invalid(suffix, "is read otherwise than '" + suffixes[0] +
                                                "' and cannot stand in for it; make two fields"));
    }
    if (std::find(suffixes.begin(), suffixes.end(), suffix) != suffixes.end())
      return tl::unexpected(invalid(suffix, "is named twice"));
    suffixes.push_back(std::move(suffix));
    begin = end + 1;
  }
  return suffixes;
}

}  // namespace spdld
