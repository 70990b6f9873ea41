// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "job/state.h"

namespace spdld::session {

// The turns that the record on disk allows a consumer, which asks for more once it was sent half of
// them. A value without a lock of its own, under that of its consumer.
class Grant {
 public:
  // kNoTurn: the job has no record, and all turns are allowed.
  explicit Grant(job::Turn until) : until_(until), ask_at_(until == job::kNoTurn ? until : 0) {}

  // The consumer is sent no turn from here on.
  job::Turn until() const { return until_; }
  // The record allows all turns before `until`; the consumer is at `turn`.
  void raise(job::Turn until, job::Turn turn) {
    until_ = std::max(until_, until);
    ask_at_ = until == job::kNoTurn ? until : turn + (until_ - std::min(until_, turn)) / 2 + 1;
  }
  struct Bound {
    job::Turn granted = 0;  // the first turn that the consumer may not be sent
    job::Turn due = 0;
  };
  // Takes back the turns beyond `due`, before which the consumer, which is at `turn`, stops.
  Bound bound(job::Turn turn, job::Turn due) {
    if (until_ == job::kNoTurn) return {.granted = turn, .due = due};
    until_ = std::min(until_, std::max(turn, due));
    return {.granted = std::max(turn, until_), .due = due};
  }
  // Whether the consumer, which is at `turn`, is to ask for more: once, until raise(). `stopped`:
  // the turn is not allowed.
  bool take_asking(job::Turn turn, bool stopped) {
    if (ask_at_ == job::kNoTurn || (!stopped && turn < ask_at_)) return false;
    ask_at_ = job::kNoTurn;
    return true;
  }
  bool has_asked() const { return ask_at_ == job::kNoTurn && until_ != job::kNoTurn; }

 private:
  job::Turn until_;
  job::Turn ask_at_;  // kNoTurn: the consumer has asked
};

}  // namespace spdld::session
