// SPDX-License-Identifier: Apache-2.0
#include "session/failure_log.h"

#include <string>

#include "base/counted.h"

namespace spdld::session {

Status FailureLog::admit(const engine::SampleFailure& failure, bool& is_new) {
  MutexLock lock(mutex_);
  recent_.push_back(failure);
  if (recent_.size() > kKept) recent_.pop_front();
  is_new = !replaced_.contains(failure.item);
  if (!is_new) return {};
  if (replaced_.size() >= budget_)
    return Status(Code::kDataLoss,
                  "item " + std::to_string(failure.item) + " (" + failure.uri +
                      "): " + failure.status.message() + "; " +
                      counted(replaced_.size(), "item was", "items were") +
                      " replaced already, which is all that on_error.budget allows: "
                      "look at 'spdlctl get failures', mend the data or raise the budget");
  replaced_.insert(failure.item);
  return {};
}

void FailureLog::record(const engine::SampleFailure& failure) {
  MutexLock lock(mutex_);
  recent_.push_back(failure);
  if (recent_.size() > kKept) recent_.pop_front();
}

std::uint64_t FailureLog::replaced() const {
  MutexLock lock(mutex_);
  return replaced_.size();
}

std::vector<engine::SampleFailure> FailureLog::recent() const {
  MutexLock lock(mutex_);
  return {recent_.begin(), recent_.end()};
}

}  // namespace spdld::session
