// SPDX-License-Identifier: Apache-2.0
#include "op/audio.h"

#include <algorithm>

namespace spdld {

std::uint64_t AudioFormat::bytes_at(std::int64_t frames) const {
  constexpr std::uint64_t kTooMany = std::uint64_t{1} << 62;
  std::uint64_t bytes = sizeof(float);
  for (const std::int64_t extent :
       {std::int64_t{std::max(channels, 1)}, std::int64_t{std::max(bins, 1)}, frames}) {
    const auto count = static_cast<std::uint64_t>(extent);
    if (count > 0 && bytes > kTooMany / count) return kTooMany;
    bytes *= count;
  }
  return bytes;
}

void AudioFormat::agree_on(std::span<const AudioFormat> kinds) {
  if (kinds.empty()) return;
  const bool is_one = std::all_of(kinds.begin(), kinds.end(), [&kinds](const AudioFormat& kind) {
    return kind.length == kinds[0].length;
  });
  if (is_one && kinds[0].length >= 0) {
    length = max_length = kinds[0].length;
    return;
  }
  std::int64_t longest = -1;
  for (const AudioFormat& kind : kinds) {
    const std::int64_t most = kind.length >= 0 ? kind.length : kind.max_length;
    if (most < 0) return;
    longest = std::max(longest, most);
  }
  if (length < 0) max_length = max_length < 0 ? longest : std::min(max_length, longest);
}

}  // namespace spdld
