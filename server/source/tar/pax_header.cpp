// SPDX-License-Identifier: Apache-2.0
#include "source/tar/pax_header.h"

#include <charconv>
#include <limits>

#include "base/text/printable.h"

namespace spdld::source {
namespace {

constexpr std::size_t kShownText = 40;  // bytes of other people's texts in a message

Status malformed(const std::string& why) { return Status(Code::kDataLoss, why); }

// Digits alone, below 2^63.
std::optional<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  if (failed != std::errc() || at != end || text.empty()) return std::nullopt;
  if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
  return value;
}

}  // namespace

// Each record is "LENGTH KEYWORD=VALUE\n", of LENGTH bytes in all.
Status PaxRecords::add(std::string_view text) {
  while (!text.empty() && text.front() != '\0') {
    const std::size_t blank = text.find(' ');
    const auto length =
        blank == std::string_view::npos ? std::nullopt : decimal(text.substr(0, blank));
    if (!length)
      return malformed("a record of its pax header begins with '" +
                       printable(text.substr(0, kShownText)) + "', which is no length");
    if (*length > text.size() || *length < blank + 2)
      return malformed("a record of its pax header says that it has " + std::to_string(*length) +
                       " bytes, of " + std::to_string(text.size()));
    const std::string_view record = text.substr(blank + 1, *length - blank - 1);
    const std::size_t equal = record.find('=');
    if (record.back() != '\n' || equal == std::string_view::npos)
      return malformed("the record '" + printable(record.substr(0, kShownText)) +
                       "' of its pax header is no KEYWORD=VALUE with a line feed behind");
    SPDLD_TRY(
        add_record(record.substr(0, equal), record.substr(equal + 1, record.size() - equal - 2)));
    text.remove_prefix(*length);
  }
  return {};
}

Status PaxRecords::add_record(std::string_view keyword, std::string_view value) {
  if (keyword.starts_with("GNU.sparse.")) {
    sparse = true;
    if (keyword == "GNU.sparse.name") sparse_name = value;
    return {};
  }
  if (keyword == "path" || keyword == "linkpath") {
    if (value.find('\0') != std::string_view::npos)
      return malformed("the " + std::string(keyword) +
                       " of its pax header holds a zero byte, as no name does");
    (keyword == "path" ? path : link) = std::string(value);
  } else if (keyword == "size") {
    size = value.empty() ? std::nullopt : decimal(value);
    if (!size && !value.empty())
      return malformed("the size of its pax header is '" + printable(value.substr(0, kShownText)) +
                       "', which is no number of bytes");
  }
  return {};
}

}  // namespace spdld::source
