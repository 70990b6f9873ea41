// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
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
#include "pipeline/listings.h"
#include "pipeline/phase.h"
#include "session/consumer.h"
#include "session/job_plan.h"
#include "session/job_rates.h"
#include "session/session_rates.h"
#include "session/views.h"
#include "store/store.h"
#include "stream/replica_presence.h"
#include "stream/stream_reader.h"

namespace spdld::session {

// The attachment of one consumer to a job. JobTable::mutex() guards it, except its const fields and
// the thread-safe Consumer.
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
  // The client's description of itself: shown to people, and used to tell apart two processes in
  // PID namespaces that the daemon does not see.
  const std::string command;
  const std::string host;
  const std::optional<std::uint32_t> host_pid;
  const std::string device;   // UUID of the GPU that it wants batches on; empty: none
  const bool starts_runners;  // when it is asked to

  std::shared_ptr<class Job> job;
  job::Member member;
  std::shared_ptr<Consumer> consumer;  // none while the attach is under way
  std::atomic<bool> queued = true;     // until a thread takes up its attach
  bool closed = false;
  // The listings that its attach waits for without a thread; null: none. They are given up with it,
  // unless others wait for them, too.
  std::shared_ptr<pipeline::ListingAsker> asker;
  pipeline::ListingAsker::Doing seen_doing;  // at the last heartbeat
  // What it brought and has put in the place of another pipeline, while it attaches.
  std::optional<Result<pipeline::PipelinePtr>> replaced;
  // Until there is a consumer, which has its GPU from then on: the one that it names, once a
  // pipeline of its job delivers there; and why its batches lie in main memory instead.
  delivery::DeviceMemoryPtr gpu;
  std::optional<std::chrono::nanoseconds> room_until;  // so long it waits for memory there
  std::string gpu_warning;
  bool gpu_sought = false;  // whether or not it could be had
  std::string parting;      // how it ended, if that was not by its connection
  // At the last heartbeat: of its pipeline, and of its stream.
  std::uint64_t seen_tasks = 0;
  std::uint64_t seen_moves = 0;
  SessionRates rates;
};
using SessionPtr = std::shared_ptr<Session>;

// A list of so many still fits into one answer.
inline constexpr std::uint32_t kMaxShards = 1u << 16;
inline constexpr std::uint32_t kMaxReplicas = wire::kMaxReplicas;
// Whether a job can have so many, and so many consumers in all.
Status check_world(std::uint32_t num_shards, std::uint32_t replicas);

// The CPU time that runs have used, and the time that the sample cache has saved them.
struct Spent {
  double cpu_s = 0;
  std::uint64_t cache_hits = 0;
  double saved_cpu_s = 0;

  Spent& operator+=(const Spent& more);
};

// The part of a job that operators and ranks may change: a plain value. A change is made on a copy,
// and the copy replaces the state once it is on disk.
struct JobState {
  static constexpr std::uint64_t kNoEnd = std::numeric_limits<std::uint64_t>::max();

  JobPlanPtr plan;
  job::StepAt start = {};              // of a run that begins afresh
  std::uint64_t open_epochs = kNoEnd;  // epochs [0, open_epochs) may be read
  job::JobLimits limits = {};
  // Of its consumers, instead of the pipeline's text. An operator's values for the job are in its
  // phases.
  std::map<std::string, std::string> vars = {};
};

// Maps each phase of a job to the same phase with the rights of another reader.
using Readings = std::map<pipeline::PhasePtr, pipeline::PhasePtr>;

// The failures of a job that are on disk before it begins.
struct KeptFailures {
  std::set<std::uint64_t> replaced = {};  // items
  std::uint64_t last = 0;                 // the number of the last one
};

// The place up to which all shards of a job have given back their batches: start="ledger" begins
// there.
struct Ledger {
  job::Progress place = {};
  std::uint64_t kept_unix_ms = 0;  // 0: nothing is on disk yet
  std::string conflict = {};       // how a consumer's own cursor differed, the last time one did
  std::optional<store::StoredPosition> kept = std::nullopt;  // as the disk has it
  std::uint64_t rewinds = 0;                                 // so far

  bool is_known() const { return kept_unix_ms > 0; }
  void keep(const store::StoredPosition& position);  // it is on disk so
  // The job goes on there as if it had never been further.
  void rewind(const job::Progress& to);
};

// How the ranks of a run come together.
struct Gathering {
  std::optional<std::chrono::nanoseconds> began = std::nullopt;  // to attach
  bool over = false;  // shards not read by now are another node's
  // Where all begin that ask for the ledger's place, once the first of a new run has.
  std::optional<job::OwnSeek> ledger_start = std::nullopt;
};

// The record of a job on disk, if there is one.
struct RecordOnDisk {
  bool is_old = true;  // it does not say the same as stored_job()
  bool may_be_of_other_run = false;
  std::uint64_t unix_ms = 0;       // when it was written last
  std::uint64_t last_failure = 0;  // the number of the last one that it has
  std::size_t replaced = 0;        // of those that this run has replaced, so many are there, too
};

// One training run on one pipeline. Facts that a rank may not change later are const;
// JobTable::mutex() guards the rest. The FailureJudge methods are thread-safe by themselves, as
// workers call them.
class Job final : public stream::FailureJudge {
 public:
  Job(stream::JobTag tag, job::JobKey key, JobPlanPtr plan, std::uint64_t seed,
      std::uint64_t replace_budget, KeptFailures kept_failures);

  Status may_replace(const engine::SampleFailure& failure) override;
  void stream_failed(const engine::StreamFailure& failure) override;
  // Logs once if the filters of `run`, which is that of its phase, reject most of what is read.
  void warn_of_rejections(const engine::Run& run);

  bool last_known() const { return max_epochs > 0 && state.open_epochs >= max_epochs; }
  const job::Schedule& schedule() const { return state.plan->schedule; }
  std::uint32_t num_shards() const { return schedule().shards(job::kNoTurn); }
  // The first turn that cursors and ranks may begin at.
  job::Turn first_turn() const { return schedule().record().oldest; }
  // The members that have a consumer.
  std::vector<SessionPtr> attached() const;
  // Where the rank is that was sent least of those that are here; of those that were, when none is.
  struct Standing {
    job::Turn turn = 0;
    job::OwnSeeks own = {};  // of a rank that is here
    job::StepAt at;
  };
  Standing standing() const;
  // The same of the rank that was sent most.
  Standing furthest() const;
  // That rank of those that are here; with a shard, of those that read it. None: none is here.
  std::optional<Standing> furthest_here(std::optional<std::uint32_t> shard = std::nullopt) const;
  job::StepAt here() const { return standing().at; }
  // The place up to which all shards have given back their batches. A shard that no rank has read
  // yet stands where the record has the job, or at its start, until it is taken for another node's.
  job::Progress acknowledged() const;
  // Whether each of its places has a consumer, or had one.
  bool all_seen() const;
  // All that it runs, or is to run.
  std::vector<pipeline::PhasePtr> phases() const;
  // Versions that no rank runs, and none comes to any more, go.
  void forget_versions();
  // Replaces the job's plan. The time spent on runs of the old plan stays counted.
  void adopt(JobPlanPtr plan);
  void read_by(const Readings& readings);
  // A run begins at state.start, of the last version and so many shards.
  void begin_run(std::uint32_t num_shards);
  // Takes down how far those that are here were given turns.
  void note_progress();
  // Whether the record must be written again: see Membership.
  bool outruns_record(bool paces);
  // One of its consumers goes, or is replaced. `done`: it has said good-bye.
  void note_left(const Session& session, bool done = false);
  // Members that are here, and have come to a turn at which shards enter, say where these begin.
  // Whether any did.
  bool find_entries();
  // After a member has gone back: where shards enter beyond all members is not known any more.
  void forget_entries();
  pipeline::PhasePtr phase() const;  // that it runs where it stands
  Spent spent() const;               // on all its runs

  const stream::JobTag tag;
  const job::JobKey key;
  const std::uint64_t seed;
  engine::FailureLog failures;
  const std::shared_ptr<stream::ByteMeter> meter = std::make_shared<stream::ByteMeter>();
  const std::shared_ptr<SharingGain> gain = std::make_shared<SharingGain>();
  const std::shared_ptr<stream::ReplicaPresence> presence =
      std::make_shared<stream::ReplicaPresence>();

  JobRates rates;
  Spent past;               // on runs that its plan has forgotten
  bool is_private = false;  // of one process, and gone with it
  bool declared = false;
  std::uint32_t incarnation = 0;
  std::uint32_t replicas = 1;
  stream::AbsentReplica absent = stream::AbsentReplica::kWait;
  job::EpochMode epochs = job::EpochMode::kAuto;
  std::uint64_t max_epochs = 0;
  std::map<std::string, std::string> first_vars;  // state.vars when the first consumer attached
  job::JobLimits first_limits;                    // state.limits when it was created
  std::optional<std::uint64_t> batch_size;
  JobState state;
  // begin_change() sets it and end_change() clears it: no rank attaches meanwhile.
  bool being_written = false;
  std::map<job::Member, SessionPtr> members;
  // An attach that waits without a thread: for a write of the job, or for the place of another
  // member, which says where it begins.
  struct WaitingAttach {
    SessionPtr session;
    delivery::AttachRequest request;
    std::string reason;
  };
  std::vector<WaitingAttach> waiting;
  // The members of this run, with those that have left or that an earlier daemon had.
  job::Membership membership;
  std::string last_parting;  // how the last consumer ended that did not say good-bye
  Gathering gathering;
  Ledger ledger;
  RecordOnDisk record;
  bool has_warned_of_rejections = false;
};
using JobPtr = std::shared_ptr<Job>;

}  // namespace spdld::session
