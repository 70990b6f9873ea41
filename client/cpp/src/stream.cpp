// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "batch_state.h"
#include "text.h"

namespace spdld::client {
namespace {

using std::chrono::milliseconds;

// How long next() waits for the end of an epoch to be told while the caller holds every credit.
constexpr milliseconds kEpochEndGrace{1'000};
// How long apply() waits for its job to be one that can change. Longer would not help where what is
// in the way is a batch that the caller itself has yet to take.
constexpr milliseconds kSettling{5'000};
constexpr milliseconds kTellWaited{1'000};
// Until streams are asked again whether they have read what leases are held for.
constexpr milliseconds kLookAgain{1};
// A job that changes its order more often than this forgets its oldest.
constexpr std::size_t kMaxOrders = 256;

std::uint64_t in_ms(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(time).count());
}

bool at_epoch_start(const Cursor& cursor) { return cursor.position == 0 && cursor.step == 0; }

std::string another_order(const std::string& pipeline, const std::string& cursor,
                          const std::string& found) {
  return join("the cursor is of another order of '", pipeline, "': ", cursor, " instead of ", found,
              "; its files, shuffle or mix have changed");
}

}  // namespace

Stream::Stream(const LoaderOptions& options, Placement place, std::string address)
    : options_(options),
      device_(names_device(options.device) ? open_device(options.device) : nullptr),
      attacher_(options, std::move(address), device_ ? device_->arenas.get() : nullptr),
      place_(std::move(place)),
      start_(options.cursor),
      arrivals_(options, device_.get()) {}

std::string Stream::whereabouts() const {
  const Cursor now = state();
  return join("step ", now.step, " of epoch ", now.epoch, " of '", options_.pipeline, "' (shard ",
              place_.shard, " of ", place_.num_shards, ")");
}

template <typename F>
auto Stream::connected(Waiting& waiting, Outage& outage, F&& call) {
  for (;;) {
    try {
      if (!link_) attach(waiting, outage);
      return call(*link_);
    } catch (const LinkLost& lost) {
      outage.lost({.why = lost.why});
      lose_link(lost.why);
      waiting.alive();
    } catch (const Error& failed) {
      lose_link_if_over(failed);
      throw;
    }
  }
}

void Stream::attach(Waiting& waiting, Outage& outage) {
  std::optional<Cursor> from = start_;
  if (!from && attached_) from = cursor_;
  // The order may change at an epoch's start, and the position there is the same in all of them.
  if (from && at_epoch_start(*from) && knows(from->order_digest)) from->order_digest.clear();
  auto link = attacher_.attach(place_, attached_ ? &*attached_ : nullptr, from, waiting, outage);
  const Attached& told = link->attached();
  const wire::AttachedFrame& frame = told.frame;
  if (attached_) {
    ++stats_.reconnects;
  } else {
    for (const std::string& warning : told.warnings) notify(options_, warning);
  }
  place_.shard = frame.shard;
  place_.num_shards = frame.num_shards;
  cursor_ = {.order_digest = told.facts.order_digest,
             .seed = frame.seed,
             .epoch = frame.epoch,
             .position = frame.position,
             .step = frame.step,
             .run = frame.run,
             .branch = frame.branch,
             .turn = frame.turn};
  if (!attached_) by_ipc_ = !told.device.empty();
  attached_ = told;
  facts_number_ = link->facts_number();
  remember_facts();
  link_ = std::move(link);
  leaving_.reset();
  lost_why_.clear();
  start_.reset();
  seek_ = 0;
  seeking_ = false;
}

// Tells the daemon, if it can still be told, that no more is wanted. It sees a hang-up once the
// last lease has ended.
void Stream::drop_link() {
  arrivals_.leave();
  for (auto* const link : {&link_, &leaving_}) {
    if (*link) (*link)->detach();
    link->reset();
  }
}

// Until another link is there, every call that needs one says why this one is gone.
void Stream::lose_link(const std::string& why) {
  if (link_) lost_why_ = why;
  drop_link();
}

// Batches that came before the link's end may wait to be taken yet, and `failed` may be an error of
// the device.
void Stream::lose_link_if_over(const Error& failed) {
  if (link_ && link_->channel()->is_lost() && arrivals_.empty()) lose_link(failed.what());
}

void Stream::apply_reset(const wire::ResetFrame& reset) {
  if (seeking_ && reset.seek != seek_) return;  // the answer to ours is still on its way
  // One that the daemon sends by itself names no place of the caller's.
  if (std::exchange(seeking_, false)) {
    cursor_.epoch = reset.epoch;
    cursor_.position = reset.position;
    cursor_.step = reset.step;
  }
  seek_ = reset.seek;
  place_.shard = reset.shard;
  place_.num_shards = reset.num_shards;
  attached_->facts.steps_per_epoch = reset.steps_per_epoch;
}

void Stream::adopt_facts(const Facts& facts, std::uint32_t number) {
  attached_->facts = facts;
  facts_number_ = number;
  remember_facts();
  cursor_.order_digest = attached_->facts.order_digest;
}

void Stream::remember_facts() {
  ++facts_changes_;
  const std::string& order = attached_->facts.order_digest;
  if (knows(order)) return;
  if (orders_.size() == kMaxOrders) orders_.erase(orders_.begin());
  orders_.push_back(order);
}

bool Stream::knows(const std::string& order_digest) const {
  return std::find(orders_.begin(), orders_.end(), order_digest) != orders_.end();
}

std::optional<Batch> Stream::hand_out(Arrival&& arrival, bool* asks) {
  const auto& frame = std::get<wire::BatchFrame>(arrival.frame);
  if (arrival.facts_number != facts_number_) adopt_facts(*arrival.facts, arrival.facts_number);
  cursor_.epoch = frame.epoch;
  cursor_.position = frame.next_position;
  cursor_.step = frame.step + 1;
  cursor_.branch = frame.branch;
  cursor_.turn = frame.turn + 1;
  if (asks != nullptr) {
    *asks = frame.tell != 0;
  } else if (frame.tell != 0) {
    handed(cursor_.turn);
  }
  by_ipc_ = arrival.by_ipc;
  ++stats_.batches;
  client::hand_out(*arrival.batch);
  arrival.batch->behind = cursor_;
  return Batch(std::move(arrival.batch));
}

void Stream::handed(std::uint64_t turn) {
  if (link_) link_->channel()->handed(turn);  // else the next attach says it
}

std::optional<Batch> Stream::try_next(Waiting* waiting, bool& ready, bool* asks) {
  ready = true;
  while (std::optional<Arrival> arrival = arrivals_.next(*link_, waiting)) {
    if (const auto* const batch = std::get_if<wire::BatchFrame>(&arrival->frame)) {
      if (batch->seek != seek_) continue;  // of a place that was left
      return hand_out(*std::move(arrival), asks);
    }
    if (const auto* const end = std::get_if<wire::EpochEndFrame>(&arrival->frame)) {
      if (end->seek != seek_) continue;
      cursor_.epoch = end->epoch + 1;
      cursor_.position = 0;
      cursor_.step = 0;
      finished_ = end->last != 0;
      return std::nullopt;
    }
    apply_reset(std::get<wire::ResetFrame>(arrival->frame));
  }
  ready = false;
  return std::nullopt;
}

// Nothing is there, and nothing can come while the caller holds all that it may hold: waiting would
// be for ever. The end of an epoch needs no credit, though, and may be on its way.
void Stream::check_credits(Waiting& waiting) {
  const Channel& channel = *link_->channel();
  const std::uint32_t credits = link_->facts().credits;
  if (credits == 0 || channel.held() < credits) return;
  if (arrivals_.await_slot()) return;
  if (arrivals_.awaits_streams()) {
    waiting.progress(0, 0, "the GPU has yet to read batches that this process has let go of");
    return;
  }
  if (cursor_.step >= attached_->facts.steps_per_epoch && waiting.waited() < kEpochEndGrace) return;
  const auto held = channel.held_batches();
  if (held.size() < credits) return;
  std::string list;
  for (const auto& batch : held) {
    list += join(list.empty() ? "" : ", ", "step ", batch.step, " of epoch ", batch.epoch);
  }
  const std::uint32_t captured = device_ ? device_->arenas->captured() : 0;
  const std::string kept = captured == 0
                               ? ""
                               : join("; of these, ", captured,
                                      " were let go of while a stream that reads them was "
                                      "captured, and end after the capture");
  throw LeaseError(kFailedPrecondition,
                   join("next() would wait for ever: this process holds all ", credits,
                        " batches that it may hold (", list, kept,
                        "); let go of one, copy what you keep, or raise prefetch"));
}

void Stream::mapped(std::chrono::nanoseconds took) {
  mapped_ns_.fetch_add(std::max<std::int64_t>(took.count(), 0), std::memory_order_relaxed);
}

void Stream::tell_waited(SteadyTime now) {
  if (!link_ || now - told_waited_ < kTellWaited) return;
  told_waited_ = now;
  wire::WaitedFrame frame{};
  frame.waited_ms = in_ms(times_.waited(now));
  frame.waits = times_.waits();
  frame.core_waited_ms = core_waits_.ms();
  frame.steps = stats_.batches;
  frame.between_ms = in_ms(times_.between());
  frame.map_ms = in_ms(std::chrono::nanoseconds(mapped_ns_.load(std::memory_order_relaxed)));
  std::copy(times_.by_length().begin(), times_.by_length().end(), frame.waits_by_length);
  link_->tell_waited(frame);
}

std::optional<Batch> Stream::next(bool* asks) {
  if (asks != nullptr) *asks = false;
  if (finished_) return std::nullopt;
  times_.asks(std::chrono::steady_clock::now());
  const auto given = [&](std::optional<Batch> batch) {
    const auto now = std::chrono::steady_clock::now();
    times_.is_answered(now, batch.has_value());
    tell_waited(now);
    return batch;
  };
  if (link_) {
    try {
      bool ready = false;
      auto batch = try_next(nullptr, ready, asks);
      if (ready) return given(std::move(batch));
    } catch (const LinkLost& lost) {
      lose_link(lost.why);
    } catch (const Error& failed) {
      lose_link_if_over(failed);
      throw;
    }
  }
  times_.waits_now();
  Waiting waiting(options_, whereabouts());
  Outage outage(lost_why_);
  try {
    return connected(waiting, outage, [&](Link& link) {
      for (;;) {
        bool ready = false;
        auto batch = try_next(&waiting, ready, asks);
        if (ready) return given(std::move(batch));
        check_credits(waiting);
        tell_waited(std::chrono::steady_clock::now());
        link.wait(waiting, arrivals_.awaits_streams() ? kLookAgain : milliseconds::max());
      }
    });
  } catch (...) {
    times_.is_answered(std::chrono::steady_clock::now(), false);
    throw;
  }
}

const Attached& Stream::attached() {
  if (!attached_) {
    Waiting waiting(options_, join("'", options_.pipeline, "' to be ready"));
    Outage outage(lost_why_);
    attach(waiting, outage);
  }
  return *attached_;
}

void Stream::go_to(const Cursor& cursor) {
  const bool knows_order = !cursor.order_digest.empty();
  if (knows_order && attached_) {
    if (cursor.seed != attached_->frame.seed) {
      throw PipelineError(kFailedPrecondition, join("the cursor was made with seed ", cursor.seed,
                                                    ", and the job has ", attached_->frame.seed));
    }
    if (!knows(cursor.order_digest)) {
      throw PipelineError(kFailedPrecondition, another_order(options_.pipeline, cursor.order_digest,
                                                             attached_->facts.order_digest));
    }
  }
  if (knows_order && options_.seed && *options_.seed != cursor.seed) {
    throw PipelineError(
        kFailedPrecondition,
        join("the cursor was made with seed ", cursor.seed, ", and the loader was opened with ",
             *options_.seed, "; leave seed out, or give ", cursor.seed));
  }
  finished_ = false;
  const bool to_epoch = !knows_order && at_epoch_start(cursor);
  if (link_ && !to_epoch) {
    // The daemon says at an attach how the job goes on from there.
    arrivals_.leave();
    leaving_ = std::move(link_);
  }
  if (!link_) {
    start_ = cursor;
    return;
  }
  cursor_.epoch = cursor.epoch;
  cursor_.position = 0;
  cursor_.step = 0;
  if (cursor.run == cursor_.run) {  // a caller that reads ahead goes on from an earlier turn
    cursor_.branch = cursor.branch;
    cursor_.turn = cursor.turn;
  }
  Waiting waiting(options_, "a seek");
  try {
    link_->seek(cursor_.turn, cursor_.epoch, ++seek_, waiting);
    seeking_ = true;
    arrivals_.clear();  // the daemon knows by now that they are let go of unread
  } catch (const LinkLost& lost) {
    lose_link(lost.why);  // the next call attaches at the cursor
  }
}

void Stream::skip(std::uint64_t steps) {
  if (steps == 0 || finished_) return;
  const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::uint32_t>::max());
  const auto skip = static_cast<std::uint32_t>(std::min(steps, most));
  Waiting waiting(options_, join("skipping from ", whereabouts()));
  Outage outage(lost_why_);
  try {
    connected(waiting, outage, [&](Link& link) {
      link.skip(cursor_, skip, ++seek_, waiting);
      seeking_ = true;
      arrivals_.clear();
      while (seeking_) {
        const wire::FrameHeader* header = link.poll(&waiting);
        if (header == nullptr) {
          link.wait(waiting, milliseconds::max());
        } else if (header->type == wire::FrameType::kBatch) {
          const auto& frame = *reinterpret_cast<const wire::BatchFrame*>(header);
          link.release(frame.lease);
        } else if (header->type == wire::FrameType::kDeviceBatch) {
          link.release(reinterpret_cast<const wire::DeviceBatchFrame*>(header)->batch.lease);
        } else if (header->type == wire::FrameType::kReset) {
          apply_reset(*reinterpret_cast<const wire::ResetFrame*>(header));
        } else if (header->type == wire::FrameType::kNotice) {
          notify(options_, Link::notice_text(*header));
        }
      }
    });
  } catch (const PipelineError& refused) {
    lose_link(refused.what());  // what comes over it waits for a Reset that never will
    throw;
  }
}

bool Stream::unknown() const { return options_.start == Start::kLedger && !start_ && !attached_; }

Cursor Stream::state() const {
  if (start_) {
    Cursor cursor = *start_;
    if (!attached_) return cursor;
    if (cursor.order_digest.empty()) {
      cursor.order_digest = attached_->facts.order_digest;
      cursor.seed = attached_->frame.seed;
    }
    return cursor;
  }
  return cursor_;
}

std::string Stream::query(wire::QueryKind kind) {
  Waiting waiting(options_, "an answer");
  Outage outage(lost_why_);
  return connected(waiting, outage, [&](Link& link) { return link.query(kind, waiting); });
}

std::vector<std::string> Stream::uris(std::span<const std::int64_t> items,
                                      const std::string& order_digest) {
  Waiting waiting(options_, "an answer");
  Outage outage(lost_why_);
  std::vector<std::string> uris;
  uris.reserve(items.size());
  while (uris.size() < items.size()) {
    const auto part = items.subspan(uris.size())
                          .first(std::min<std::size_t>(items.size() - uris.size(), wire::kMaxUris));
    const std::string text = connected(
        waiting, outage, [&](Link& link) { return link.uris(part, order_digest, waiting); });
    if (std::count(text.begin(), text.end(), '\0') != static_cast<std::ptrdiff_t>(part.size()))
      throw ConnectionError(kDataLoss, join("the daemon was asked for ", part.size(),
                                            " uris, and answered with another number"));
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\0', begin);
      if (end == std::string::npos) break;
      uris.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return uris;
}

Applied Stream::apply(const ApplyWish& wish) {
  Waiting waiting(options_, join("'", options_.pipeline, "' with other variables to be ready"));
  Outage outage(lost_why_);
  Backoff backoff;
  std::optional<SteadyTime> give_up;
  for (;;) {
    try {
      return connected(waiting, outage, [&](Link& link) {
        return link.apply(wish, waiting);  // said again after a loss: it is done once
      });
    } catch (const PipelineError& refused) {
      // The job cannot change yet. Ranks that ask at the same step are to be answered alike,
      // whoever of them asks first.
      if (refused.code() != kUnavailable || !link_) throw;  // or it was the link's end
      const auto now = std::chrono::steady_clock::now();
      if (!give_up) give_up = now + std::min(kSettling, options_.timeout);
      if (now >= *give_up) throw;
      waiting.progress(0, 0, refused.what());
    }
    waiting.wait(-1, 0, backoff.next());
  }
}

LoaderStats Stream::stats() const {
  LoaderStats stats = stats_;
  stats.waits = times_.waits();
  stats.waited = times_.waited();
  stats.between = times_.between();
  stats.mapped = std::chrono::nanoseconds(mapped_ns_.load(std::memory_order_relaxed));
  stats.held = link_ ? link_->channel()->held() : 0;
  stats.credits = attached_ ? attached_->facts.credits : 0;
  stats.delivery = by_ipc_ ? "cuda ipc" : device_ ? "pinned" : "host";
  if (device_) {
    stats.staged = device_->copies->staged();
    stats.staged_why = device_->copies->staged_why();
  }
  return stats;
}

void Stream::close() {
  drop_link();
  if (device_) device_->arenas->close();
}

}  // namespace spdld::client
