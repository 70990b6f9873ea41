// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "delivery/connection.h"
#include "session/loop.h"

namespace spdld::session {

// Tells a consumer's loop the end of each of its epochs, and stops it before epochs that may not be
// made yet. A value without a lock of its own, under that of its consumer.
class Epochs {
 public:
  Epochs(delivery::Connection& connection, std::uint64_t open, bool last_known)
      : connection_(connection), open_(open), last_known_(last_known) {}

  // Epochs [0, count) may be made. `last_known`: that is the job's end, not a gate that will open.
  void open(std::uint64_t count, bool last_known);
  // None: the epoch may be made. Empty: it never will be.
  std::optional<std::string> waits_for(std::uint64_t epoch) const;

  // The loop goes on at `place`: no end before that is told.
  void go_to(const Loop::Place& place);
  void sent(std::uint64_t step) { steps_ = step + 1; }
  // The job's edits of the loop's turn are other ones now.
  void edits_changed() { passed_.reset(); }
  // Tells the ends before the job's edits of the loop's turn. False: the loop waits there.
  bool come_to_edits(const Loop& loop);
  // Tells the ends that these edits make; the loop is `at` then. False: the loop waits there.
  bool pass_edits(const Loop& loop, const job::State& at);

 private:
  bool tell_ends(std::uint64_t epoch, std::uint32_t seek);  // up to this one

  delivery::Connection& connection_;
  std::uint64_t open_;
  bool last_known_;
  std::uint64_t epoch_ = 0;           // that the loop is in, as it was told
  std::uint64_t steps_ = 0;           // of that, behind the last batch
  std::optional<job::Turn> come_to_;  // the loop has been told all up to this turn's edits
  std::optional<job::Turn> passed_;   // the loop was told this turn's edits
  bool told_last_ = false;            // that the job has no further epoch
};

}  // namespace spdld::session
