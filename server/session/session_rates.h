// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "base/rate_window.h"
#include "session/consumer.h"
#include "session/views.h"

namespace spdld::session {

ShortagesView shortages_view(const Consumer::Lacked& lacked);

// The rates of a session in the last seconds. Guarded by JobTable::mutex(); Reports adds the
// counters each second.
class SessionRates {
 public:
  void add(std::chrono::nanoseconds now, const Consumer& consumer);
  // None before a second look.
  std::optional<SessionView::Lately> lately() const;

 private:
  enum Counter {
    kRows,
    kBatches,
    kWaits,
    kWaitedNs,
    kCoreWaitedNs,
    kBetweenNs,
    kMappedNs,
    kAttachedNs,
    kLackedNs
  };
  static constexpr std::size_t kCounters = kLackedNs + stream::kShortages;

  RateWindow<kCounters> counts_;
  bool has_told_ = false;  // its client, of its loop
  bool knows_core_waited_ = false;
};

}  // namespace spdld::session
