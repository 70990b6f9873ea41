// SPDX-License-Identifier: Apache-2.0
#include "session/session_rates.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace spdld::session {

ShortagesView shortages_view(const Consumer::Lacked& lacked) {
  ShortagesView view{.attached_s = in_seconds(lacked.attached)};
  for (std::size_t why = 0; why < stream::kShortages; ++why)
    view.lacked_s[why] = in_seconds(lacked.time[why]);
  return view;
}

void SessionRates::add(std::chrono::nanoseconds now, const Consumer& consumer) {
  const Consumer::View view = consumer.view();
  const Consumer::Lacked lacked = consumer.lacked();
  RateWindow<kCounters>::Counts counts{};
  counts[kRows] = view.rows;
  counts[kBatches] = view.batches;
  counts[kWaits] = view.waiting.waits;
  counts[kWaitedNs] = as_count(view.waiting.waited);
  // A client that has come back tells sums since its loader was opened.
  const bool has_told = view.waiting != delivery::WaitedNotice();
  if (has_told != std::exchange(has_told_, has_told)) counts_.clear();
  knows_core_waited_ = view.waiting.core_waited.has_value();
  counts[kCoreWaitedNs] = as_count(view.waiting.core_waited.value_or(std::chrono::milliseconds(0)));
  counts[kBetweenNs] = as_count(view.waiting.between);
  counts[kMappedNs] = as_count(view.waiting.mapped);
  counts[kAttachedNs] = as_count(lacked.attached);
  for (std::size_t why = 0; why < stream::kShortages; ++why)
    counts[kLackedNs + why] = as_count(lacked.time[why]);
  counts_.add(now, counts);
}

std::optional<SessionView::Lately> SessionRates::lately() const {
  const auto rates = counts_.per_second();
  if (!rates) return std::nullopt;
  const RateWindow<kCounters>::Rates& of = *rates;
  SessionView::Lately lately{.rows_per_s = of[kRows],
                             .batches_per_s = of[kBatches],
                             .waited_share = std::min(of[kWaitedNs] * 1e-9, 1.0)};
  if (of[kBatches] > 0) lately.ready_share = 1 - std::min(of[kWaits] / of[kBatches], 1.0);
  if (knows_core_waited_) lately.core_waited_share = std::min(of[kCoreWaitedNs] * 1e-9, 1.0);
  lately.between_share = std::min(of[kBetweenNs] * 1e-9, 1.0);
  lately.map_share = of[kMappedNs] * 1e-9;
  lately.shortages.attached_s = of[kAttachedNs] * 1e-9;
  for (std::size_t why = 0; why < stream::kShortages; ++why)
    lately.shortages.lacked_s[why] = of[kLackedNs + why] * 1e-9;
  return lately;
}

}  // namespace spdld::session
