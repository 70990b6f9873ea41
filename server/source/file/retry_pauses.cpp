// SPDX-License-Identifier: Apache-2.0
#include "source/file/retry_pauses.h"

#include <unistd.h>

#include <algorithm>

#include "base/rng.h"

namespace spdld::source {
namespace {

constexpr std::chrono::nanoseconds kLongestPause = std::chrono::seconds(5);

}  // namespace

RetryPauses::RetryPauses(RetrySpec retry, std::chrono::nanoseconds first_pause)
    : retries_(retry.retries),
      first_pause_(first_pause),
      jitter_key_(mix64(static_cast<std::uint64_t>(::getpid()),
                        static_cast<std::uint64_t>(
                            std::chrono::system_clock::now().time_since_epoch().count()))) {}

std::chrono::nanoseconds RetryPauses::pause(int failures, const std::string& uri) const {
  std::chrono::nanoseconds pause = std::min(first_pause_, kLongestPause);
  for (int i = 1; i < failures && pause < kLongestPause; ++i) pause *= 2;
  KeyedRng rng(mix64(mix64(jitter_key_, name_key(uri)), static_cast<std::uint64_t>(failures)));
  const auto count = static_cast<double>(std::min(pause, kLongestPause).count());
  return std::chrono::nanoseconds(static_cast<std::int64_t>(count * rng.uniform(0.5, 1.0)));
}

}  // namespace spdld::source
