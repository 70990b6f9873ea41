// SPDX-License-Identifier: Apache-2.0
#include "base/line_quota.h"

#include <algorithm>

namespace spdld {

bool LineQuota::admit(uid_t uid, std::chrono::nanoseconds now) {
  const auto [entry, is_new] = users_.try_emplace(uid);
  User& user = entry->second;
  if (is_new) {
    user.tokens = burst_;
  } else {
    const std::chrono::duration<double> passed = now - user.refilled;
    user.tokens = std::min(burst_, user.tokens + passed.count() * per_second_);
  }
  user.refilled = now;
  if (user.tokens >= 1) {
    user.tokens -= 1;
    return true;
  }
  if (user.left_out++ == 0) user.next_notice = now + kNoticePause;
  return false;
}

std::vector<LineQuota::LeftOut> LineQuota::take_left_out(std::chrono::nanoseconds now, bool all) {
  std::vector<LeftOut> told;
  for (auto entry = users_.begin(); entry != users_.end();) {
    User& user = entry->second;
    if (user.left_out > 0 && (all || now >= user.next_notice)) {
      told.push_back({entry->first, user.left_out});
      user.left_out = 0;
    }
    const std::chrono::duration<double> passed = now - user.refilled;
    const bool full = user.tokens + passed.count() * per_second_ >= burst_;
    entry = full && user.left_out == 0 ? users_.erase(entry) : std::next(entry);
  }
  return told;
}

}  // namespace spdld
