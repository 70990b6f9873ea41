// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

namespace spdld {

// Limits the log lines that each user can cause: a token bucket per user. Lines over the limit are
// counted, and the count is reported every kNoticePause. Not thread-safe: the log's lock guards it.
class LineQuota {
 public:
  static constexpr std::chrono::seconds kNoticePause{10};

  struct LeftOut {
    uid_t uid = 0;
    std::uint64_t lines = 0;
  };

  LineQuota(double burst, double per_second) : burst_(burst), per_second_(per_second) {}

  // False: the line is left out, and counted. `now` is monotonic.
  bool admit(uid_t uid, std::chrono::nanoseconds now);
  // What was left out since it was last told. A user's number is due kNoticePause after the first
  // line that was left out; with `all`, at once.
  std::vector<LeftOut> take_left_out(std::chrono::nanoseconds now, bool all = false);

 private:
  struct User {
    double tokens = 0;
    std::chrono::nanoseconds refilled{0};
    std::uint64_t left_out = 0;
    std::chrono::nanoseconds next_notice{0};
  };

  const double burst_;
  const double per_second_;
  std::map<uid_t, User> users_;  // those that have caused a line since their burst was full
};

}  // namespace spdld
