// SPDX-License-Identifier: Apache-2.0
#include "arrivals.h"

#include <algorithm>
#include <utility>

#include "spdld/error.h"
#include "text.h"

namespace spdld::client {
namespace {

// Batches whose copies are begun before the reader asks for them: while one is computed on, the
// next is there and the one behind it is on its way.
constexpr std::size_t kAhead = 2;

}  // namespace

std::optional<Arrival> Arrivals::next(Link& link, Waiting* waiting) {
  if (device_ == nullptr) return take(link, waiting);
  device_->arenas->reap();
  device_->copies->reap();
  while (queue_.size() < 1 + kAhead && end_ == nullptr && take_ahead(link, waiting)) {
  }
  if (queue_.empty()) {
    if (end_ != nullptr) std::rethrow_exception(std::exchange(end_, nullptr));
    return std::nullopt;
  }
  begin_copies(link.facts().credits);
  std::optional<Arrival> arrival = std::move(queue_.front());
  queue_.pop_front();
  return arrival;
}

bool Arrivals::take_ahead(Link& link, Waiting* waiting) {
  try {
    std::optional<Arrival> arrival = take(link, waiting);
    if (!arrival) return false;
    queue_.push_back(*std::move(arrival));
    return true;
  } catch (const LinkLost&) {
    if (queue_.empty()) throw;
    end_ = std::current_exception();
  } catch (const Error&) {
    if (queue_.empty()) throw;
    end_ = std::current_exception();
  }
  return false;
}

std::optional<Arrival> Arrivals::take(Link& link, Waiting* waiting) {
  while (const wire::FrameHeader* const header = link.poll(waiting)) {
    switch (header->type) {
      case wire::FrameType::kBatch: {
        const auto& frame = *reinterpret_cast<const wire::BatchFrame*>(header);
        return of_batch(link, frame, link.batch(frame));
      }
      case wire::FrameType::kDeviceBatch: {
        const auto& frame = *reinterpret_cast<const wire::DeviceBatchFrame*>(header);
        Arrival arrival = of_batch(link, frame.batch, link.batch(frame));
        arrival.is_begun = arrival.by_ipc = true;
        return arrival;
      }
      case wire::FrameType::kEpochEnd:
        return Arrival{.frame = *reinterpret_cast<const wire::EpochEndFrame*>(header)};
      case wire::FrameType::kReset:
        facts_ = nullptr;  // it changes them under the same number
        return Arrival{.frame = *reinterpret_cast<const wire::ResetFrame*>(header)};
      default: notify(options_, Link::notice_text(*header));
    }
  }
  return std::nullopt;
}

Arrival Arrivals::of_batch(const Link& link, const wire::BatchFrame& frame,
                           std::shared_ptr<BatchState> batch) {
  if (facts_ == nullptr || facts_number_ != link.facts_number()) {
    facts_ = std::make_shared<const Facts>(link.facts());
    facts_number_ = link.facts_number();
  }
  return {
      .frame = frame, .batch = std::move(batch), .facts = facts_, .facts_number = facts_number_};
}

void Arrivals::begin_copies(std::uint32_t credits) {
  for (Arrival& arrival : queue_) {
    if (arrival.batch == nullptr || arrival.is_begun) continue;
    const bool is_next = &arrival == &queue_.front();
    if (credits > 0 && !device_->copies->has_room(*arrival.batch, credits)) {
      if (!is_next) return;
      throw LeaseError(kFailedPrecondition,
                       join("next() would wait for ever: this process holds all ", credits,
                            " batches that it may hold on the device; let go of one, copy what "
                            "you keep, or raise prefetch"));
    }
    try {
      device_->copies->begin(*arrival.batch);
    } catch (const DeviceError&) {
      // It stays what comes next, and is tried again then.
      if (is_next) throw;
      return;
    }
    arrival.is_begun = true;
  }
}

void Arrivals::clear() {
  if (device_ != nullptr) device_->copies->finish();
  queue_.clear();
  end_ = nullptr;
  facts_ = nullptr;
}

void Arrivals::leave() {
  for (const Arrival& arrival : queue_) {
    if (arrival.batch != nullptr) leave_unread(*arrival.batch);
  }
  clear();
  if (device_ != nullptr) device_->copies->free_idle();
}

}  // namespace spdld::client
