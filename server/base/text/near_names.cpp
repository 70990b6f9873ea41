// SPDX-License-Identifier: Apache-2.0
#include "base/text/near_names.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace spdld {
namespace {

// Edits (insert, remove, replace, swap neighbours) that make one name of the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& known,
                    std::size_t most_wrong) {
  constexpr std::size_t kShort = 3;
  constexpr std::size_t kLongest = 64;  // long texts are no misspelt names
  if (name.size() > kLongest) return "";
  const std::string* best = nullptr;
  std::size_t best_distance = most_wrong + 1;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLongest || candidate == name) continue;
    // One edit makes another word of so short a one: 'cpu' of 'gpu'.
    if (name.size() <= kShort && !candidate.starts_with(name.substr(0, 1))) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : "; did you mean '" + *best + "'?";
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  return nearest(name, known, std::max<std::size_t>(1, (name.size() + 1) / 3));
}

std::string did_you_slip(std::string_view name, const std::vector<std::string>& known) {
  return nearest(name, known, std::clamp<std::size_t>(name.size() / 4, 1, 2));
}

std::string hint(std::string_view wrong, const std::vector<std::string>& known) {
  if (known.empty()) return "; there are none";
  const std::string near = did_you_mean(wrong, known);
  return near.empty() ? "; there are: " + listed_names(known) : near;
}

std::string listed_names(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

}  // namespace spdld
