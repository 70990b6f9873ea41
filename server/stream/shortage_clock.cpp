// SPDX-License-Identifier: Apache-2.0
#include "stream/shortage_clock.h"

#include <utility>

#include "stream/stream.h"

namespace spdld::stream {
namespace {

engine::HeadTime head_time(const std::shared_ptr<const Stream>& of) {
  if (of != nullptr) return of->head_time();
  return {.at = std::chrono::steady_clock::now()};
}

}  // namespace

void ShortageClock::end() {
  if (lack_) pass(std::nullopt);
}

void ShortageClock::lacks(Shortage why, std::shared_ptr<const Stream> filling) {
  if (lack_ && lack_->why == why && lack_->stream == nullptr && lack_->filling == filling) return;
  pass(Lack{.why = why, .filling = std::move(filling)});
}

void ShortageClock::lacks_batch(const std::shared_ptr<const Stream>& stream, Index at,
                                Shortage otherwise) {
  pass(Lack{.why = otherwise, .stream = stream, .at = at});
}

bool ShortageClock::lacks_batch(const Stream& stream, Index at) const {
  return lack_ && lack_->at == at && lack_->stream.get() == &stream;
}

void ShortageClock::pass(std::optional<Lack> next) {
  std::optional<engine::HeadTime> now;
  if (lack_) {
    now = head_time(lack_->stream);
    add(*lack_, *now, time_);
  }
  if (next) next->before = now && next->stream == lack_->stream ? *now : head_time(next->stream);
  lack_ = std::move(next);
  std::shared_ptr<const Stream> stream;
  if (lack_) stream = lack_->stream != nullptr ? lack_->stream : lack_->filling;
  if (starving_ && &starving_->port() == stream.get()) return;
  starving_.reset();
  if (stream != nullptr) starving_.emplace(stream->executor(), stream);
}

void ShortageClock::add(const Lack& lack, const engine::HeadTime& now, ShortageTime& to) {
  using std::chrono::nanoseconds;
  nanoseconds left = now.at - lack.before.at;
  for (std::size_t wait = 0; wait < engine::kHeadWaits; ++wait) {
    const nanoseconds part = now.waited[wait] - lack.before.waited[wait];
    to[wait] += part;
    left -= part;
  }
  to[static_cast<std::size_t>(lack.why)] += left;
}

ShortageTime ShortageClock::total() const {
  ShortageTime total = time_;
  if (lack_) add(*lack_, head_time(lack_->stream), total);
  return total;
}

}  // namespace spdld::stream
