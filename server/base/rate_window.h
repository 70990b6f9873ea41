// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace spdld {

// A time as a counter; none is less than 0.
inline std::uint64_t as_count(std::chrono::nanoseconds of) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(of.count(), 0));
}

// How fast some counters have grown lately. Whoever owns the counters adds what they say about once
// a second; what was true in the last 10 s is kept, in place. Not thread-safe: its owner guards it.
template <std::size_t kCounters>
class RateWindow {
 public:
  using Counts = std::array<std::uint64_t, kCounters>;
  using Rates = std::array<double, kCounters>;

  static constexpr std::chrono::nanoseconds kSpan = std::chrono::seconds(10);

  // Whether enough time has passed for another look: to add more often does not shorten the window.
  bool is_due(std::chrono::nanoseconds now) const {
    return size_ == 0 || now - newest().at >= kSpacing * 9 / 10;
  }

  // `now` is monotonic. What is not due is left out. Counters that are less than they were begin
  // anew.
  void add(std::chrono::nanoseconds now, const Counts& counts) {
    if (!is_due(now)) return;
    if (size_ > 0 && !std::equal(counts.begin(), counts.end(), newest().counts.begin(),
                                 [](std::uint64_t is, std::uint64_t was) { return is >= was; }))
      size_ = 0;
    // One that is older than the span stays until the next one is, too.
    while (size_ > 1 && now - oldest(1).at >= kSpan) --size_;
    if (size_ == kSamples) --size_;
    last_ = (last_ + 1) % kSamples;
    samples_[last_] = {.at = now, .counts = counts};
    ++size_;
  }

  void clear() { size_ = 0; }

  // By how much the counter at `index` grew in a second, as of the last add(); none before the
  // second one.
  std::optional<double> per_second(std::size_t index) const {
    const auto rates = per_second();
    if (!rates) return std::nullopt;
    return (*rates)[index];
  }
  // Of all.
  std::optional<Rates> per_second() const {
    if (size_ < 2) return std::nullopt;
    const Sample& first = oldest(0);
    const Sample& last = newest();
    const double seconds = std::chrono::duration<double>(last.at - first.at).count();
    Rates rates{};
    for (std::size_t i = 0; i < kCounters; ++i)
      rates[i] = static_cast<double>(last.counts[i] - first.counts[i]) / seconds;
    return rates;
  }

 private:
  static constexpr std::size_t kSamples = 11;
  static constexpr std::chrono::nanoseconds kSpacing = kSpan / (kSamples - 1);

  struct Sample {
    std::chrono::nanoseconds at{0};
    Counts counts{};
  };

  const Sample& newest() const { return samples_[last_]; }
  // The `index`-th of those that count, the oldest being 0.
  const Sample& oldest(std::size_t index) const {
    return samples_[(last_ + kSamples + 1 - size_ + index) % kSamples];
  }

  std::array<Sample, kSamples> samples_{};  // a ring; the last `size_` up to `last_` count
  std::size_t last_ = 0;
  std::size_t size_ = 0;
};

}  // namespace spdld
