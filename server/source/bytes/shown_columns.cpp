// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/shown_columns.h"

#include <algorithm>
#include <cstddef>

#include "base/text/foreign_names.h"
#include "base/text/near_names.h"
#include "base/text/printable.h"
#include "base/text/utf8.h"

namespace spdld::source {

std::string shown_text(std::string_view text) {
  constexpr std::size_t kMost = 60;
  const std::string_view shown = cut(text, kMost);
  return "'" + printable(shown) + (shown.size() < text.size() ? "...'" : "'");
}

std::string nearest_name(std::string_view wrong, const std::vector<std::string>& there) {
  constexpr std::size_t kMost = 10000;
  return there.size() > kMost ? "" : printable(did_you_mean(wrong, there));
}

std::string missing_name(std::string_view noun, std::string_view wrong,
                         const std::vector<std::string>& there) {
  constexpr std::size_t kMost = 20;
  const std::string first = std::string(noun) + " " + shown_text(wrong);
  if (there.empty()) return first + "; there are none";
  if (const std::string near = nearest_name(wrong, there); !near.empty()) return first + near;
  std::string all = first + "; there are: ";
  for (std::size_t i = 0; i < std::min(kMost, there.size()); ++i) {
    all += (i == 0 ? "" : ", ") + shown_text(there[i]);
  }
  if (there.size() > kMost) all += " and " + std::to_string(there.size() - kMost) + " more";
  return all;
}

std::string missing_table_column(std::string_view wrong, const std::vector<std::string>& there) {
  const std::string what = missing_name("column", wrong, there);
  const ForeignFormat* const foreign = foreign_table(there);
  if (foreign == nullptr || what.ends_with('?')) return what;
  return what + "; the table is " + described(*foreign);
}

}  // namespace spdld::source
