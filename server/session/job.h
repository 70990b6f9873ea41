// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rate_window.h"
#include "delivery/data_server.h"
#include "engine/failure_log.h"
#include "job/membership.h"
#include "pipeline/phase.h"
#include "session/consumer.h"
#include "session/job_rates.h"
#include "session/views.h"
#include "store/store.h"
#include "stream/replica_roll.h"
#include "stream/stream_reader.h"
#include "stream/timeline.h"

namespace spdld::session {

// One attached consumer. Guarded by Sessions, but for what is const and the consumer itself.
struct Session {
  Session(delivery::ConnectionPtr attaches, const delivery::AttachRequest& request);

  // The process that reads, as messages name it: "pid 17", or "pid 3 on pod-7" where the kernel
  // cannot tell its pid because it lives in a PID namespace that the daemon does not see.
  std::string process() const;
  // Whether both are of one process; and whether nothing that is known says otherwise.
  bool is_process_of(const Session& other) const;
  bool may_be_process_of(const Session& other) const;

  const std::uint64_t id;  // its connection's
  const delivery::ConnectionPtr connection;
  // What its client says of itself: for people, and to tell two that come from namespaces which the
  // daemon does not see.
  const std::string command;
  const std::string host;
  const std::optional<std::uint32_t> host_pid;
  const std::string device;  // UUID of the GPU that it wants batches on; empty: none

  std::shared_ptr<class Job> job;
  job::Member member;
  std::shared_ptr<Consumer> consumer;  // none while the attach is under way
  bool queued = true;                  // other attaches are before it
  bool closed = false;
  // Until there is a consumer, which has its GPU from then on: the one that it names, once a
  // pipeline of its job delivers there; and why its batches lie in main memory instead.
  delivery::DeviceMemoryPtr gpu;
  std::string gpu_warning;
  bool gpu_sought = false;  // whether or not it could be had
  std::string parting;      // how it ended, if that was not by its connection
  // At the last heartbeat: of its pipeline, and of its stream.
  std::uint64_t seen_tasks = 0;
  std::uint64_t seen_moves = 0;
  RateWindow<1> rows;  // that it was handed
};
using SessionPtr = std::shared_ptr<Session>;

// A list of so many still fits into one answer.
inline constexpr std::uint32_t kMaxShards = 1u << 16;
inline constexpr std::uint32_t kMaxReplicas = wire::kMaxReplicas;
// Whether a job can have so many, and so many consumers in all.
Status check_world(std::uint32_t num_shards, std::uint32_t replicas);

// What runs have cost, and what the sample cache has saved them.
struct Spent {
  double cpu_s = 0;
  std::uint64_t cache_hits = 0;
  double saved_cpu_s = 0;

  Spent& operator+=(const Spent& more);
};

// Where an operator sent a job. Consumers read as before up to `from`, and go on at `to`.
struct Move {
  std::uint32_t number = 0;  // counts them
  std::uint32_t after = 0;   // the number of the one before
  job::StepAt from;
  job::StepAt to;
  stream::Timeline before;
};

// What operators and ranks may change of a job: a plain value. A change is made on a copy, written
// to the disk, and takes the place of what was there once it is on disk.
struct JobState {
  static constexpr std::uint64_t kNoEnd = std::numeric_limits<std::uint64_t>::max();

  stream::Timeline timeline;
  job::StepAt start = {};
  std::uint64_t open_epochs = kNoEnd;  // epochs [0, open_epochs) may be read
  job::JobLimits limits = {};
  // Of its consumers, instead of the pipeline's text. An operator's values for the job are in its
  // phases.
  std::map<std::string, std::string> vars = {};
  // Those that a consumer, or another process with its state, may be yet to go along with.
  std::vector<Move> moves = {};
  std::uint32_t last_move = 0;  // its number
  // No state that consumers brought, of other runs too, has seen more.
  std::uint32_t move_count = 0;
};

// What is on disk of a job's failures before it begins.
struct KeptFailures {
  std::set<std::uint64_t> replaced = {};  // items
  std::uint64_t last = 0;                 // the number of the last one
};

// One training run on one pipeline. What a rank may not change later is const; the rest is guarded
// by Sessions. The judge's part is thread-safe by itself: workers call it.
class Job final : public stream::FailureJudge {
 public:
  static constexpr std::uint64_t kNoEnd = JobState::kNoEnd;

  Job(stream::JobTag tag, job::JobKey key, stream::Timeline timeline, std::uint64_t seed,
      std::uint64_t replace_budget, KeptFailures kept_failures);

  Status may_replace(const engine::SampleFailure& failure) override;
  void stream_failed(const engine::StreamFailure& failure) override;

  bool last_known() const { return last_known(state.open_epochs); }
  bool last_known(std::uint64_t open) const { return max_epochs > 0 && open >= max_epochs; }
  // The lowest step that any consumer is yet to be handed; where they were when none is here.
  job::StepAt here() const;
  // Where a shard stands that nobody has read since the daemon began: as the record has the job.
  job::StepAt resumes_at() const;
  // Up to where all shards have given back what they were handed. A shard that nobody has read yet
  // stands where the record has the job, or at its start, until it is taken for another node's.
  struct Acknowledged {
    job::StepAt at;
    std::uint64_t position = 0;

    friend bool operator==(const Acknowledged&, const Acknowledged&) = default;
  };
  Acknowledged acknowledged() const;
  bool has_consumer(job::Member member) const;
  // Whether each of its places has a consumer, or had one.
  bool all_seen() const;
  // After a change of its timeline: what has become of no use in it goes.
  void forget_old_cuts();
  // All that it runs, or is to run. Nobody reads it meanwhile: what it has spent stays counted.
  std::vector<pipeline::PhasePtr> phases() const;
  void read_by(const stream::Readings& readings);
  // It goes on there as if it had never been further.
  void rewind_ledger(Acknowledged to);
  // A swap is prepared, or a change is being written to the disk.
  bool changes() const { return pending || tuning != nullptr || being_written; }
  // Takes down how far those that are here were given steps.
  void note_progress();
  // Whether they will soon be further than its record on disk says. `paces`: a second has passed
  // since the last time that it was.
  bool outruns_record(bool paces);
  // One of its consumers goes, or is replaced. `done`: it has said good-bye.
  void note_left(const Session& session, bool done = false);
  // Drops the moves that all have gone along with. Whether it dropped any. Without `goers_too`, a
  // move does not wait for members that have left a shard which a resize has taken away.
  bool settle_moves(bool goers_too = true);
  // The first one that who has gone along with so many has yet to go along with; null: none.
  const Move* move_after(std::uint32_t moves) const;
  // What is still to come for who has gone along with so many moves.
  std::vector<Jump> jumps_after(std::uint32_t moves) const;
  const stream::Timeline& timeline_after(std::uint32_t moves) const;  // before the first of them
  const pipeline::Phase& phase() const { return *state.timeline.phase(here()); }
  Spent spent() const;  // on all its runs
  job::JobView view() const;
  // How it ended: when nobody is attached any more.
  job::EndView end() const;
  store::StoredJob stored() const { return stored(state, membership); }
  // The record of the job if it had this state and these members.
  store::StoredJob stored(const JobState& as, const job::Membership& members_as) const;
  store::StoredPosition stored_position(const Acknowledged& at) const;

  const stream::JobTag tag;
  const job::JobKey key;
  const std::uint64_t seed;
  engine::FailureLog failures;
  const std::shared_ptr<stream::ByteMeter> meter = std::make_shared<stream::ByteMeter>();
  const std::shared_ptr<SharingGain> gain = std::make_shared<SharingGain>();
  const std::shared_ptr<stream::ReplicaRoll> roll = std::make_shared<stream::ReplicaRoll>();

  JobRates rates;
  Spent past;               // on runs that its timeline has forgotten
  bool is_private = false;  // of one process, and gone with it
  bool declared = false;
  std::uint32_t incarnation = 0;
  std::uint32_t replicas = 1;
  stream::AbsentReplica absent = stream::AbsentReplica::kWait;
  job::EpochMode epochs = job::EpochMode::kAuto;
  std::uint64_t max_epochs = 0;
  std::map<std::string, std::string> first_vars;  // state.vars when the first consumer attached
  std::optional<std::uint64_t> batch_size;
  JobState state;
  // A change of it is being written to the disk: nobody attaches meanwhile.
  bool being_written = false;
  bool starts_by_ledger = false;  // all who ask for the ledger's place begin at state.start
  std::map<job::Member, SessionPtr> members;
  // Attaches without a thread: they wait for a write of the job, or for another member whose place
  // says where they begin.
  struct WaitingAttach {
    SessionPtr session;
    delivery::AttachRequest request;
    std::string reason;
  };
  std::vector<WaitingAttach> waiting;
  // The members of this run, with those that have left or that an earlier daemon had.
  job::Membership membership;
  std::string last_parting;  // how the last consumer ended that did not say good-bye
  // When its consumers began to come; and that whoever has not come by now is another node's.
  std::optional<std::chrono::nanoseconds> began;
  bool gathered = false;
  job::LedgerView ledger;
  std::optional<store::StoredPosition> kept;  // what is on disk of it
  std::uint64_t rewinds = 0;                  // of it, so far
  std::uint64_t failures_kept = 0;            // the number of the last failure that is on disk
  std::size_t replaced_kept = 0;  // of those that this run has replaced, so many are, too
  bool record_is_old = true;      // the record on disk, if any, does not say what stored() does
  bool new_run = false;           // and it may be of another run
  std::uint64_t recorded_unix_ms = 0;  // when it was written last
  // A swap that is prepared and not committed yet: no consumer goes beyond it.
  struct Pending {
    job::StepAt from;
    pipeline::PhasePtr phase;
    std::optional<job::StepAt> planned = std::nullopt;  // where it was to come, if that is earlier

    job::StepAt first() const { return planned ? std::min(*planned, from) : from; }
  };
  std::optional<Pending> pending;
  pipeline::PhasePtr tuning;  // the same of one that only renames what is run
  static constexpr std::size_t kMostMoves = 16;

 private:
  bool gone_along(const Move& move, bool goers_too) const;
  bool note_progress(const Session& session);  // whether it asks for more batches
};
using JobPtr = std::shared_ptr<Job>;

}  // namespace spdld::session
