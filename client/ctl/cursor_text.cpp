// SPDX-License-Identifier: Apache-2.0
#include "ctl/cursor_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "ctl/failure.h"

namespace spdld::ctl {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Failure(kWrongUsage, fmt::format("'{}' is no cursor: it must be "
                                         "ORDER_DIGEST:SEED:EPOCH:POSITION:STEP:RUN:BRANCH:TURN, "
                                         "as --print-cursor writes it",
                                         text));
}

}  // namespace

std::string cursor_text(const Cursor& cursor) {
  std::string text = fmt::format("{}:{}:{}:{}:{}", cursor.order_digest, cursor.seed, cursor.epoch,
                                 cursor.position, cursor.step);
  if (cursor.run != 0) text += fmt::format(":{}:{}:{}", cursor.run, cursor.branch, cursor.turn);
  return text;
}

Cursor parse_cursor(const std::string& text) {
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (colons != 4 && colons != 7) refuse(text);
  std::array<std::string_view, 8> parts;
  std::string_view rest = text;
  for (std::string_view& part : parts) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto number = [&](std::string_view part, auto& value) {
    const char* end = part.data() + part.size();
    const auto [stopped, failure] = std::from_chars(part.data(), end, value);
    if (failure != std::errc() || stopped != end) refuse(text);
  };
  Cursor cursor;
  cursor.order_digest = parts[0];
  number(parts[1], cursor.seed);
  number(parts[2], cursor.epoch);
  number(parts[3], cursor.position);
  number(parts[4], cursor.step);
  if (colons == 7) {
    number(parts[5], cursor.run);
    number(parts[6], cursor.branch);
    number(parts[7], cursor.turn);
    if (cursor.run == 0) refuse(text);
  }
  return cursor;
}

}  // namespace spdld::ctl
