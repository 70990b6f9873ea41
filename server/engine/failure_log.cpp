// SPDX-License-Identifier: Apache-2.0
#include "engine/failure_log.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/text/counted.h"

namespace spdld::engine {
namespace {

FailureFacts facts_of(const SampleFailure& sample) {
  return {.unix_ms = unix_ms(),
          .sample = FailedSample{.epoch = sample.epoch,
                                 .position = sample.position,
                                 .item = sample.item,
                                 .uri = sample.uri,
                                 .replaced_by = sample.replaced_by},
          .code = std::string(code_name(sample.status.code())),
          .message = sample.status.message(),
          .ended_stream = false};
}

}  // namespace

void FailureLog::add(FailureFacts facts) {
  recent_.push_back({.number = ++last_number_, .facts = std::move(facts)});
  if (recent_.size() > kKept) recent_.pop_front();
}

Status FailureLog::admit(const SampleFailure& failure, bool& is_new) {
  MutexLock lock(mutex_);
  is_new = !replaced_.contains(failure.item);
  if (is_new && replaced_.size() >= budget_)
    return Status(Code::kDataLoss,
                  "item " + std::to_string(failure.item) + " (" + failure.uri +
                      "): " + failure.status.message() + "; " +
                      counted(replaced_.size(), "item was", "items were") +
                      " replaced already, which is all that on_error.budget allows: "
                      "look at 'spdlctl get failures', mend the data or raise the budget");
  add(facts_of(failure));
  if (!is_new) return {};
  replaced_.insert(failure.item);
  replaced_here_.push_back(failure.item);
  return {};
}

void FailureLog::record(const StreamFailure& failure) {
  FailureFacts facts;
  if (failure.sample) facts = facts_of(*failure.sample);
  facts.unix_ms = unix_ms();
  facts.code = std::string(code_name(failure.status.code()));
  facts.message = failure.status.message();
  facts.ended_stream = true;
  MutexLock lock(mutex_);
  const auto same = [&](const LoggedFailure& known) {
    return known.facts.ended_stream && known.facts.sample == facts.sample &&
           known.facts.message == facts.message;
  };
  last_end_ = facts.message;
  if (std::none_of(recent_.begin(), recent_.end(), same)) add(std::move(facts));
}

std::uint64_t FailureLog::replaced() const {
  MutexLock lock(mutex_);
  return replaced_.size();
}

std::vector<LoggedFailure> FailureLog::recent() const { return behind(0); }

std::vector<LoggedFailure> FailureLog::behind(std::uint64_t number) const {
  MutexLock lock(mutex_);
  const auto first = std::find_if(recent_.begin(), recent_.end(), [&](const LoggedFailure& known) {
    return known.number > number;
  });
  return {first, recent_.end()};
}

std::vector<std::uint64_t> FailureLog::replaced_behind(std::size_t known) const {
  MutexLock lock(mutex_);
  return {replaced_here_.begin() + static_cast<std::ptrdiff_t>(known), replaced_here_.end()};
}

std::string FailureLog::last_end() const {
  MutexLock lock(mutex_);
  return last_end_;
}

}  // namespace spdld::engine
