// SPDX-License-Identifier: Apache-2.0
#include "delivery/admission.h"

#include <fmt/format.h>

#include <algorithm>

namespace spdld::delivery {

Status Admission::enter(uid_t uid) {
  MutexLock lock(mutex_);
  const auto found = users_.find(uid);
  const std::size_t own = found == users_.end() ? 0 : found->second;
  if (own >= bounds_.per_user) {
    return Status(Code::kResourceExhausted,
                  fmt::format("user {} has {} consumers already; no more are allowed: end some "
                              "('spdlctl get sessions'), or have limits.connections raised",
                              uid, own));
  }
  const bool trusted = bounds_.trusted.contains(uid);
  const std::size_t for_others = bounds_.in_all - std::min(bounds_.reserved, bounds_.in_all);
  if (in_all_ >= bounds_.in_all || (!trusted && of_others_ >= for_others)) {
    return Status(Code::kResourceExhausted,
                  fmt::format("the daemon has its {} consumers already: ask an admin, whom "
                              "'spdlctl get users' shows whose they are, to end some, or to raise "
                              "the daemon's limit of file descriptors",
                              in_all_));
  }
  ++users_[uid];
  ++in_all_;
  if (!trusted) ++of_others_;
  return {};
}

void Admission::leave(uid_t uid) {
  MutexLock lock(mutex_);
  const auto own = users_.find(uid);
  if (--own->second == 0) users_.erase(own);
  --in_all_;
  if (!bounds_.trusted.contains(uid)) --of_others_;
}

std::map<uid_t, std::size_t> Admission::users() const {
  MutexLock lock(mutex_);
  return users_;
}

}  // namespace spdld::delivery
