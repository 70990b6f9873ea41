// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/time_histogram.h"
#include "delivery/event_loop.h"
#include "delivery/runners/call_cells.h"
#include "delivery/runners/channel.h"
#include "op/row_call.h"

namespace spdld::delivery {

// One child of a supervisor, or a pool that has none, for whoever looks.
struct RunnerView {
  uid_t uid = 0;
  std::string call = {};
  std::string key = {};
  pid_t supervisor = 0;      // as it sees itself; 0: there is none
  std::uint32_t number = 0;  // among the supervisor's children
  pid_t pid = 0;             // as the supervisor sees it; 0: it has ended, or is yet to come
  pid_t own_pid = 0;         // as the daemon sees it; 0: it cannot, or as above
  std::uint64_t calls = 0;   // of all that had this number
  std::uint64_t rows = 0;
  std::uint64_t restarts = 0;
  TimeHistogram times = {};  // what the rows took there, likewise
  std::string why = {};      // the last one ended; or what a pool without children waits for
};

// One row at its pool.
struct CalledRow {
  CallRow* row = nullptr;  // null: its caller is gone
  CallSink* sink = nullptr;
  std::uint64_t token = 0;
  std::uint64_t holder = 0;
  bool describes = false;                          // CallRow's
  std::uint64_t answer_bytes = 0;                  // that have been found to be needed
  int ends = 0;                                    // of processes that had it in hand
  bool answered = false;                           // of a row at a child
  std::chrono::steady_clock::time_point due = {};  // its pause ends
};

struct RunnerSupervisor;

// A process that runs the function. Made when it has said hello, and ended once: by its
// supervisor's word, or with the supervisor.
struct RunnerChild {
  struct Call {
    std::uint64_t id = 0;
    std::uint32_t cell = 0;
    std::vector<CalledRow> rows = {};
    std::size_t left = 0;  // to be answered
  };

  std::shared_ptr<Channel> channel;
  std::weak_ptr<RunnerSupervisor> supervisor;
  std::uint32_t number = 0;
  std::int32_t pid = 0;
  std::unique_ptr<CallCells> cells;
  std::deque<Call> calls = {};                       // the oldest first
  std::chrono::steady_clock::time_point since = {};  // its first row without an answer has it
  std::chrono::steady_clock::time_point begun = {};  // the oldest call
  bool awaits = false;                               // all rows of a call run at once
  bool timed = false;                                // a timer looks at `since`
  bool serves = true;                                // else it is given no more calls
  bool described = false;                            // in cells that rows need not be as large as
  bool ended = false;                                // the pool knows it no more
  std::string killed_for = {};                       // by the daemon's word
};

// A process of the user's that keeps such children.
struct RunnerSupervisor {
  std::shared_ptr<Channel> channel;
  std::array<std::uint8_t, 16> token = {};
  pid_t pid = 0;
  std::string python;
  std::map<std::uint32_t, std::shared_ptr<RunnerChild>> children = {};
  std::uint64_t asked = 0;                                // to look
  std::uint64_t looked = 0;                               // answers to that
  std::optional<std::array<std::uint8_t, 16>> code = {};  // ChildHello's

  // Its children are given no rows until it has looked whether their code is the current one.
  bool is_looking() const { return looked < asked; }
};

// The rows that wait for one user's function, and the processes that run it. Made and owned by
// RunnerServer, shared with those who hold it (hold()); ends some time after the last of these.
// Rows are taken in order, up to kMaxCallRows at once; one that was in the hand of a process that
// ended goes to another, and comes back as bad if that one ends, too. Thread-safe where that is
// said; all else is the loop's thread's alone. Sinks are told by that thread under no lock.
class RunnerPool : public std::enable_shared_from_this<RunnerPool> {
 public:
  struct Options {
    std::string command;                   // that starts a supervisor
    CellSizes cells{};                     // to begin with
    std::chrono::milliseconds patience{};  // with a supervisor that is to end a child
    EventLoop::Task let_go = {};           // posted when the last holder has let go
  };

  RunnerPool(uid_t uid, CallSpec spec, std::string key, Options options, ArenaBudget& budget,
             std::shared_ptr<EventLoop> loop);

  uid_t uid() const { return uid_; }
  const CallSpec& spec() const { return spec_; }
  const std::string& key() const { return key_; }

  // Any thread. Null: it has ended.
  std::shared_ptr<RowCaller> hold() SPDLD_EXCLUDES(mutex_);
  // Its key, while it has no supervisor.
  std::string wanted() const SPDLD_EXCLUDES(mutex_);
  void add_views(std::vector<RunnerView>& views) const SPDLD_EXCLUDES(mutex_);

  // Ends it if nobody holds it: its supervisors are told to end.
  bool end_unheld() SPDLD_EXCLUDES(mutex_);
  // All rows come back with kCancelled, as those that come later do.
  void stop() SPDLD_EXCLUDES(mutex_);

  std::shared_ptr<RunnerSupervisor> add_supervisor(std::shared_ptr<Channel> channel,
                                                   const runner::SupervisorHello& hello);
  std::shared_ptr<RunnerSupervisor> supervisor_of(const runner::ChildHello& hello) const;
  Result<std::shared_ptr<RunnerChild>> add_child(
      const std::shared_ptr<RunnerSupervisor>& supervisor, std::shared_ptr<Channel> channel,
      const runner::ChildHello& hello);
  // What they say; kInvalidArgument: it is garbage, and the connection is to be closed.
  Status take(RunnerSupervisor& supervisor, Channel::Frame frame);
  Status take(const std::shared_ptr<RunnerChild>& child, Channel::Frame frame);
  // The connection has ended.
  void gone(const std::shared_ptr<RunnerSupervisor>& supervisor);
  void gone(const std::shared_ptr<RunnerChild>& child);
  // Has the child ended.
  void kill(const std::shared_ptr<RunnerChild>& child, std::string why);

 private:
  // Processes that may end with a row in hand, before that is the row's own fault: where they end
  // by themselves, and where it is their supervisor that ended.
  static constexpr int kMostEnds = 2;
  static constexpr int kMostSupervisorEnds = 6;
  class Holder;
  struct Told {
    CalledRow row;
    Status status;
  };

  void call(CalledRow row) SPDLD_EXCLUDES(mutex_);
  void drop_unwanted() SPDLD_EXCLUDES(mutex_);
  void let_go(std::uint64_t holder) SPDLD_EXCLUDES(mutex_);
  void forget(std::uint64_t holder) SPDLD_EXCLUDES(mutex_);
  std::string waits_for() const SPDLD_EXCLUDES(mutex_);

  void look_again();
  void take_up() SPDLD_EXCLUDES(mutex_);
  void take_incoming() SPDLD_EXCLUDES(mutex_);
  // Until its pause ends.
  void hold_back(CalledRow row);
  void end_pauses();
  // Those of the rows that no child has, and that such is true of, come back uncalled.
  void cancel(const std::function<bool(const CalledRow&)>& which);
  void dispatch() SPDLD_EXCLUDES(mutex_);
  void give_all();
  // Until then, for what rows take that are quick, a call costs more than it carries.
  bool are_enough(const RunnerChild& child) const;
  std::shared_ptr<RunnerChild> idlest() const;
  // False: no child may have rows now.
  bool give(const std::shared_ptr<RunnerChild>& child);
  Status open_cells(RunnerChild& child, CellSizes needed);
  std::vector<CalledRow> next_rows(const RunnerChild& child);
  std::size_t serving() const;
  void watch_timeout(const std::shared_ptr<RunnerChild>& child);
  void look_at(const std::shared_ptr<RunnerChild>& child);

  Status take_answer(RunnerChild& child, const runner::Answer& answer);
  Status take_row(const RunnerChild& child, RunnerChild::Call& call, CellReader& cell,
                  std::size_t index, std::vector<CalledRow>& again);
  void await_end(const std::shared_ptr<RunnerChild>& child);
  // Takes the answers that it has written, and its rows back. `why` empty: none of them is to
  // blame. A row whose processes have ended `most` times comes back as bad; others go to another.
  void end_child(RunnerChild& child, const std::string& why, int most = kMostEnds);
  void take_ended(RunnerSupervisor& supervisor, const runner::ChildEnded& frame, std::string text);
  void fail_waiting(const std::string& text);
  void requeue(std::vector<CalledRow> rows);
  void tell(CalledRow& row, Status status);  // when flush() is called
  void flush();
  void publish() SPDLD_EXCLUDES(mutex_);

  const uid_t uid_;
  const CallSpec spec_;
  const std::string key_;
  const Options options_;
  const std::uint64_t answer_table_bytes_;
  ArenaBudget& budget_;
  const std::shared_ptr<EventLoop> loop_;

  std::deque<CalledRow> queue_;
  std::deque<CalledRow> paused_;
  std::vector<std::shared_ptr<RunnerSupervisor>> supervisors_;
  std::vector<Told> told_;
  std::uint64_t next_call_ = 1;
  std::uint64_t answer_bytes_;           // of a row, as they have been of late
  std::chrono::nanoseconds row_time_{};  // likewise
  int unborn_ = 0;                       // ends in a row, of processes that could not serve yet
  std::string trouble_;                  // why the last runners did not come to serve
  std::optional<std::array<std::uint8_t, 16>> code_;  // ChildHello's, that rows are made with

  mutable Mutex mutex_;
  std::vector<CalledRow> incoming_ SPDLD_GUARDED_BY(mutex_);
  bool posted_ SPDLD_GUARDED_BY(mutex_) = false;  // take_up()
  // It was held again after nobody held it: the rows that come are the first of another job.
  bool look_due_ SPDLD_GUARDED_BY(mutex_) = false;
  // The children have what they may: rows that come wait for the next answer.
  bool is_full_ SPDLD_GUARDED_BY(mutex_) = false;
  bool stopped_ SPDLD_GUARDED_BY(mutex_) = false;
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  std::uint64_t users_ SPDLD_GUARDED_BY(mutex_) = 0;    // that hold it
  std::uint64_t holders_ SPDLD_GUARDED_BY(mutex_) = 0;  // and those whose rows are yet to come back
  std::uint64_t next_holder_ SPDLD_GUARDED_BY(mutex_) = 1;
  std::string waits_for_ SPDLD_GUARDED_BY(mutex_);
  bool is_wanted_ SPDLD_GUARDED_BY(mutex_) = true;  // no supervisor is there
  // By supervisor's connection and number.
  std::map<std::pair<std::uint64_t, std::uint32_t>, RunnerView> views_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::delivery
