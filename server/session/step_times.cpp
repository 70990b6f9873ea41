// SPDX-License-Identifier: Apache-2.0
#include "session/step_times.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/clock.h"

namespace spdld::session {
namespace {

// A loop that has not given anything back for so many of its steps stands still.
constexpr double kStillSteps = 4;
constexpr std::chrono::seconds kStill{1};

// Of an even number of values: the mean of the middle two.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace

void StepTimes::begin(std::size_t left_out) {
  counting_ = true;
  left_out_ = left_out;
  batches_ = 0;
  last_.reset();
  run_steps_.clear();
}

void StepTimes::add(const Given& given) {
  const std::optional<Given> before = std::exchange(last_, given);
  if (++batches_ == 1 || before->epoch != given.epoch) return;
  const double step_s = in_seconds(given.at - before->at);
  if (run_steps_.size() < most_) run_steps_.push_back(step_s);
  if (counting_ && batches_ > left_out_ && steps_.size() < most_) steps_.push_back(step_s);
}

std::optional<double> StepTimes::typical_s() const {
  if (steps_.empty()) return std::nullopt;
  std::vector<double> means;
  for (auto from = steps_.begin(); from != steps_.end();) {
    const auto count = std::min<std::ptrdiff_t>(kBurst, steps_.end() - from);
    if (count < static_cast<std::ptrdiff_t>(kBurst) && !means.empty()) break;
    means.push_back(std::accumulate(from, from + count, 0.0) / static_cast<double>(count));
    from += count;
  }
  return median(std::move(means));
}

bool StepTimes::stands_still(std::chrono::nanoseconds now) const {
  if (batches_ <= left_out_ || run_steps_.empty()) return false;
  const std::chrono::nanoseconds still = now - last_->at;
  return still >= kStill && in_seconds(still) >= kStillSteps * median(run_steps_);
}

}  // namespace spdld::session
