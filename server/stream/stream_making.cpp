// SPDX-License-Identifier: Apache-2.0
// What a stream is to the executor: which batch is next, and what becomes of it.
#include <algorithm>
#include <utility>

#include "stream/stream.h"

namespace spdld::stream {
namespace {

std::uint32_t slot_of(const engine::BatchOrder& order) {
  return static_cast<std::uint32_t>(order.ticket);
}

job::StepAt place_of(const engine::BatchOrder& order) { return {order.epoch, order.step}; }

}  // namespace

bool Stream::leads(const std::vector<delivery::HolderId>& readers, job::StepAt at) const {
  MutexLock lock(mutex_);
  if (ended_ || timeline_.settled(to_make_) >= at) return false;
  return std::any_of(readers.begin(), readers.end(),
                     [this](delivery::HolderId reader)
                         SPDLD_REQUIRES(mutex_) { return find(reader) != nullptr; });
}

std::optional<engine::BatchOrder> Stream::open() {
  const auto order = next_order();
  tell_followers();
  if (!order) return order;
  // Without the lock: zeroing fresh pages takes milliseconds.
  const Status backed = pool_->arena().back(slot_of(*order));
  if (backed.ok()) return order;
  fail({.status = backed.with_context("the slots of this consumer")});
  abandon(*order);
  return std::nullopt;
}

bool Stream::follows() const {
  if (after_ == nullptr) return false;
  std::vector<delivery::HolderId> readers;
  for (const Reader& reader : readers_) {
    if (reader.id != 0) readers.push_back(reader.id);
  }
  return after_->leads(readers, from_);
}

std::optional<engine::BatchOrder> Stream::next_order() {
  MutexLock lock(mutex_);
  if (ended_ || holds_ > 0 || readers_.empty() || follows()) return std::nullopt;
  after_.reset();
  to_make_ = timeline_.settled(std::max(to_make_, lowest()));
  const auto wanted = [this](const Reader& reader) SPDLD_REQUIRES(mutex_) {
    return reader.wants(to_make_) && to_make_.epoch < reader.open_epochs;
  };
  if (std::none_of(readers_.begin(), readers_.end(), wanted)) return std::nullopt;
  const source::Sharding sharding = timeline_.sharding(to_make_);
  if (shard_ >= sharding.segment().num_shards) return std::nullopt;
  const auto slot = pool_->loan();
  if (!slot) note_stall();
  if (!slot) return std::nullopt;
  if (stalled_since_) stalled_ += clock_.now() - *std::exchange(stalled_since_, std::nullopt);
  const engine::BatchOrder order{.epoch = to_make_.epoch,
                                 .step = to_make_.step,
                                 .rows = sharding.rows(to_make_.step, shard_),
                                 .next_position = sharding.position_of(to_make_.step + 1),
                                 .slot = pool_->arena().slot(*slot).data(),
                                 .ticket = *slot};
  ++to_make_.step;
  return order;
}

void Stream::commit(const engine::BatchOrder& order) {
  ReaderRefs waiting;
  {
    MutexLock lock(mutex_);
    const job::StepAt at = place_of(order);
    std::uint32_t expected = 0;
    if (!ended_) {
      for (const Reader& reader : readers_) {
        if (!reader.wants(at)) continue;
        ++expected;
        if (reader.next != at) continue;
        if (auto ref = reader.reader.lock()) waiting.push_back(std::move(ref));
      }
    }
    pool_->commit(slot_of(order), expected);
    if (expected > 0) {
      ready_.emplace(at, Ready{slot_of(order), order, expected});
      begin_copies();
    } else {
      forget(at);
    }
  }
  for (const auto& reader : waiting) reader->ready();
}

void Stream::abandon(const engine::BatchOrder& order) {
  {
    MutexLock lock(mutex_);
    forget(place_of(order));
  }
  pool_->abort(slot_of(order));
}

// Each job decides for itself, about what it is to read; one that cannot bear the loss fails alone.
Status Stream::may_replace(const engine::SampleFailure& failure) {
  const job::StepAt at{failure.epoch, failure.step};
  struct Asked {
    JobTag job = 0;
    std::shared_ptr<StreamReader> reader;
  };
  std::vector<Asked> asked;
  bool others = false;
  {
    MutexLock lock(mutex_);
    for (const Reader& reader : readers_) {
      auto ref = reader.reader.lock();
      if (ref == nullptr) continue;
      if (reader.wants(at)) {
        asked.push_back({reader.job, std::move(ref)});
      } else {
        others = true;
      }
    }
  }
  std::map<JobTag, Status> verdicts;
  for (const Asked& one : asked) {
    if (!verdicts.contains(one.job))
      verdicts.emplace(one.job, one.reader->judge().may_replace(failure));
  }
  Status refusal;
  std::vector<JobTag> told;
  for (const auto& [job, verdict] : verdicts) {
    if (verdict.ok()) {
      told.push_back(job);
    } else {
      refusal = verdict;
    }
  }
  if (!refusal.ok() && told.empty() && !others) return refusal;
  {
    MutexLock lock(mutex_);
    if (!ended_) replaced_[at].push_back({failure, std::move(told)});
  }
  for (const Asked& one : asked) {
    const Status& verdict = verdicts.at(one.job);
    if (verdict.ok()) continue;
    leave(one.reader->holder());
    one.reader->failed(engine::ended_by(failure, verdict), *this);
  }
  return {};
}

void Stream::fail(const engine::StreamFailure& failure) {
  ReaderRefs readers;
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    readers = live_readers();
  }
  for (const auto& reader : readers) reader->failed(failure, *this);
}

}  // namespace spdld::stream
