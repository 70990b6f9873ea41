// SPDX-License-Identifier: Apache-2.0
#include "session/epochs.h"

#include <algorithm>
#include <utility>

namespace spdld::session {
namespace {

// Whether the job is sought at this turn.
bool is_sought(const job::Schedule& schedule, job::Turn turn) {
  const std::vector<job::Edit>& edits = schedule.edits();
  return std::any_of(edits.begin(), edits.end(), [turn](const job::Edit& edit) {
    return edit.turn == turn && std::holds_alternative<job::Edit::Seek>(edit.change);
  });
}

}  // namespace

void Epochs::open(std::uint64_t count, bool last_known) {
  open_ = count;
  last_known_ = last_known;
}

std::optional<std::string> Epochs::waits_for(std::uint64_t epoch) const {
  if (epoch < open_) return std::nullopt;
  if (last_known_) return std::string();
  return "epoch " + std::to_string(epoch) +
         " has not been opened yet: 'spdlctl job advance' does it";
}

void Epochs::go_to(const Loop::Place& place) {
  epoch_ = place.at.epoch;
  steps_ = place.at.step;
  come_to_.reset();
  passed_.reset();
  told_last_ = false;
}

bool Epochs::tell_ends(std::uint64_t epoch, std::uint32_t seek) {
  for (; epoch_ < epoch; ++epoch_) {
    if (epoch_ >= open_) return false;
    told_last_ = last_known_ && epoch_ + 1 >= open_;
    connection_.send_epoch_end(epoch_, steps_, seek, told_last_);
    steps_ = 0;
  }
  return true;
}

bool Epochs::come_to_edits(const Loop& loop) {
  if (come_to_ == loop.turn) return true;
  const job::State behind = loop.reads.plan->schedule.behind(loop.turn, loop.own);
  if (!tell_ends(behind.epoch, loop.serial)) return false;
  come_to_ = loop.turn;
  return true;
}

bool Epochs::pass_edits(const Loop& loop, const job::State& at) {
  if (passed_ != loop.turn) {
    // A seek of the job ends no loop.
    if (is_sought(loop.reads.plan->schedule, loop.turn)) {
      epoch_ = at.epoch;
      told_last_ = false;
    }
    if (!tell_ends(at.epoch, loop.serial)) return false;
    passed_ = loop.turn;
  }
  if (at.epoch < open_) return true;
  // A loop that begins behind the job's last epoch is told that it has ended, too.
  if (last_known_ && at.epoch > 0 && !std::exchange(told_last_, true))
    connection_.send_epoch_end(at.epoch - 1, steps_, loop.serial, true);
  return false;
}

}  // namespace spdld::session
