// SPDX-License-Identifier: Apache-2.0
#include "op/audio.h"

#include <algorithm>

namespace spdld {

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
