// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/cpu_priority.h"
#include "base/users/credentials.h"
#include "engine/failure_log.h"
#include "engine/plan/plan_facts.h"
#include "job/job_view.h"
#include "job/request.h"
#include "job/state.h"
#include "job/step_at.h"
#include "op/image.h"
#include "op/jpeg_images.h"
#include "op/tensor_spec.h"
#include "pipeline/preview_view.h"
#include "spdld/wire.h"
#include "stream/shortage.h"

// The requests to the session layer and its answers: plain values, which control/ turns into
// messages and nothing else keeps.
namespace spdld::session {

// The step at which running jobs change to the applied version.
struct SwapAt {
  enum class Kind {
    kNow,        // the first step that no shard has begun; refused in an epoch for another order
    kNextEpoch,  // the first epoch that no shard has begun
    kStep,       // `step`: refused if the job has passed it
  };
  Kind kind = Kind::kNextEpoch;
  job::StepAt step;
};

// Which jobs change, and when.
struct SwapRequest {
  std::string job;  // empty: all jobs on the pipeline that the caller may change
  SwapAt at;
  bool allow_schema_change = false;  // other tensor names, dtypes or shapes than so far
  // Variables that were given for these jobs: they win over the jobs' own.
  std::set<std::string> vars = {};
  // An earlier version that is taken up again: each job has the variables that it had under it.
  std::optional<std::uint32_t> again = std::nullopt;
};

// A job that goes on with other content than the current version has for it.
struct StayingJob {
  std::string job;
  std::uint32_t version = 0;  // that it runs, or will

  friend bool operator==(const StayingJob&, const StayingJob&) = default;
};

// A variable that an operator gave for a job that has a value of its own.
struct Override {
  std::string name;
  std::string own;
  std::string given;  // what it runs with

  friend bool operator==(const Override&, const Override&) = default;
};

// The facts of one job that a dry run adds to its outcome.
struct SwapOutlook {
  std::uint32_t version_before = 0;   // that it runs up to the change
  job::StepAt frontier;               // the first step that no shard has begun
  std::uint64_t steps_per_epoch = 0;  // there
  // Of the fastest rank in the last seconds, and 1 at least; 0: no rank is attached; none: one of
  // them has only just come.
  std::optional<double> steps_per_s = std::nullopt;
  bool known = false;  // it runs that, or is to change to it there, already

  friend bool operator==(const SwapOutlook&, const SwapOutlook&) = default;
};

// The outcome of a swap for one job.
struct JobSwap {
  std::string job;
  std::string pipeline;
  std::uint32_t version = 0;  // that it runs from `from` on
  job::StepAt from;
  bool tuned = false;  // only live-tunable values differ: changed at once, nothing was rebuilt
  bool runs = false;   // it runs that since `from` already: nothing was changed
  std::vector<job::PlannedChange> replaces = {};  // what was to come, and does not now
  std::vector<Override> overrides = {};
  std::optional<SwapOutlook> outlook = std::nullopt;  // of a dry run alone
};

struct PipelineView {
  std::string name;
  std::uint32_t version = 0;
  uid_t owner = 0;
  std::string state;  // "indexing", "ready", "failed"
  std::string error;  // why, when failed
  std::uint64_t indexed = 0;
  std::uint64_t items = 0;
  std::uint64_t classes = 0;
  std::string order_digest;
  std::string content_digest;
  std::uint64_t batch_size = 0;
  std::vector<TensorSpec> tensors;
  std::uint32_t jobs = 0;                // that run it now
  std::vector<StayingJob> staying = {};  // only after an apply or rollback that changes no job
  std::vector<std::string> warnings = {};
};

// How a submitted pipeline would be run.
struct ExplainView {
  engine::PlanFacts facts;
  std::string text;  // the same for people
};

// The outcome of an apply that swaps jobs; of a dry run, the outcome that it would have.
struct SwapView {
  PipelineView pipeline;
  std::vector<JobSwap> jobs;
  bool unchanged = false;  // what was applied was current already: no version was made
  // Of a rollback: the version that was applied again, or is current again; 0: only a change that
  // lay ahead of a job was dropped.
  std::uint32_t repeats = 0;
};

// One version of a pipeline, as the history keeps it.
struct RevisionView {
  std::uint32_t version = 0;
  std::uint64_t applied_unix_ms = 0;
  uid_t applied_by = 0;
  std::string content_digest;
  std::string note;        // "rollback to version 3", "for job 'run'"; empty: applied
  std::uint32_t jobs = 0;  // that run it now
  bool current = false;    // what a new job gets
};

// A job as a caller names it.
struct JobName {
  std::string job = {};
  std::vector<std::string> pipelines = {};  // their ids, the first counts most; empty: any
  // Another meaning of `job`, as an admin may write it: USER/JOB.
  struct OfUser {
    uid_t uid = 0;
    std::string job = {};
  };
  std::optional<OfUser> of_user = std::nullopt;
};

// One shard's batch of a job's step.
struct StepView {
  std::string job = {};
  std::string pipeline = {};
  std::uint32_t version = 0;
  job::StepAt at = {};
  std::uint32_t shard = 0;
  std::uint32_t num_shards = 1;
  // None: the run does not come to the step, which is shown as a seek to it would have it.
  std::optional<job::Turn> turn = std::nullopt;
  bool sent = false;  // the turn lies behind
  pipeline::PreviewView batch = {};
};

// What ready data would bring to a job's training. Steps are of the slowest rank.
struct HeadspaceView {
  std::string job = {};
  std::string pipeline = {};
  std::uint32_t ranks = 0;
  std::uint32_t prefetch = 0;     // batches that lay ready for each rank at most; 0: no round began
  std::uint64_t steps_now = 0;    // that were timed of each rank, as they are
  std::uint64_t steps_ready = 0;  // with data ready
  std::uint32_t rounds = 0;       // in which ranks were held
  double longest_hold_s = 0;      // of a round
  std::uint64_t steps_per_epoch = 0;
  std::optional<double> now_s = std::nullopt;    // of a step; none: too few were timed
  std::optional<double> ready_s = std::nullopt;  // with data ready
  std::string ended_by = {};                     // what ended it early; empty: nothing did
  std::string warning = {};                      // what is not as before; empty: all is

  // The share of a step's time that ready data would save; none: not measured.
  std::optional<double> gain() const {
    if (!now_s || !ready_s || *now_s <= 0) return std::nullopt;
    return std::max(0.0, 1 - *ready_s / *now_s);
  }
};

// The outcome of deleting a job.
struct DeletedJob {
  std::string pipeline = {};  // that the job ran
  bool had_ended = false;     // only what was kept of it was there
};

struct JobRequest {
  std::string job;
  std::string pipeline;
  std::uint32_t num_shards = 1;
  std::uint32_t replicas = 1;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> batch_size;
  std::map<std::string, std::string> vars;
  job::EpochMode epochs = job::EpochMode::kAuto;
  std::uint64_t max_epochs = 0;  // 0: no end
  job::JobLimits limits = {};
};

// Of a session's time, how long no batch lay ready though it could be given one, and for want of
// what.
struct ShortagesView {
  double attached_s = 0;                                 // in all
  std::array<double, stream::kShortages> lacked_s = {};  // by stream::Shortage

  double of(stream::Shortage why) const { return lacked_s[static_cast<std::size_t>(why)]; }
};

struct SessionView {
  // In the last seconds, in each of them.
  struct Lately {
    double rows_per_s = 0;
    double batches_per_s = 0;
    double waited_share = 0;  // of its time its loop waited for batches; as its client says
    // Of the batches that its loop was given, so many were there when it wanted them; none: it was
    // given none.
    std::optional<double> ready_share = std::nullopt;
    // Of its time, the thread that asks for batches was ready to run and had no core; none: not
    // known. As its client says.
    std::optional<double> core_waited_share = std::nullopt;
    double between_share = 0;  // of its time its loop had a batch and asked for none; likewise
    // For which functions of `map=` ran, in all their threads together; likewise.
    double map_share = 0;
    ShortagesView shortages = {};
  };

  std::uint64_t id = 0;
  uid_t uid = 0;
  pid_t pid = 0;  // 0: it lives in a PID namespace that the daemon does not see
  // These as its client says:
  std::string host;
  std::uint32_t host_pid = 0;  // as that host sees it; 0: not said
  std::string command;
  std::string client;
  std::string job;
  std::string pipeline;
  uid_t owner = 0;  // of the job
  std::uint32_t shard = 0;
  std::uint32_t num_shards = 0;
  std::uint32_t replica = 0;
  std::uint32_t pipeline_version = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint32_t credits = 0;
  std::uint32_t leases = 0;
  std::uint32_t ready = 0;                      // finished batches that wait for a credit
  std::optional<Lately> lately = std::nullopt;  // none: not known
  ShortagesView shortages = {};                 // since it has attached
  std::uint64_t batches = 0;
  std::uint64_t rows = 0;
  std::uint64_t arena_bytes = 0;
  std::string gpu = {};  // UUID; empty: its batches lie in main memory
  // Since its loader was opened, as its client says: wire::WaitedFrame.
  double waited_s = 0;
  std::uint64_t waits = 0;
  std::uint64_t steps = 0;
  double between_s = 0;
  double map_s = 0;
  std::array<std::uint64_t, wire::kWaitLengths> waits_by_length = {};
};

struct FailureView {
  std::string job;
  std::string pipeline;
  engine::FailureFacts facts = {};
};

// The data socket since the start, and the slots of all arenas that consumers see, now.
struct DataPlaneView {
  std::uint64_t connections = 0;        // now
  std::uint64_t watched_processes = 0;  // now: disconnected, alive, and maybe still reading slots
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;
  std::uint64_t protocol_errors = 0;
  std::uint64_t overflows = 0;
  std::uint64_t hello_timeouts = 0;
  std::uint64_t accept_failures = 0;
  std::uint32_t slots_free = 0;
  std::uint32_t slots_loaned = 0;
  std::uint32_t slots_ready = 0;
  std::uint32_t slots_leased = 0;
  std::uint32_t slots_retired = 0;
  std::uint64_t bad_releases = 0;  // wrong, late or repeated
};

struct CacheView {
  std::string name;
  std::string form;
  std::string where;
  std::uint64_t limit_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint64_t items = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t changed = 0;  // items that were kept and are no more what they were
  std::uint64_t corrupt = 0;  // entries that did not come back as they were kept
  std::uint64_t dropped = 0;  // items not kept because storage was slow, full or failing
  double saved_s = 0;
  std::string why;  // why nothing more is kept; empty: all is well
};

// Where in JPEG files decoding may begin (media/jpeg_scan/seek_indexes.h); counts are of images.
struct JpegView {
  std::uint64_t limit_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  std::uint64_t refused = 0;
  std::uint64_t contradicted = 0;
  std::uint64_t compared = 0;
  std::uint64_t different = 0;
  JpegImages images = {};
};

// How much of a resource a user holds, and the limit on it.
struct Use {
  std::uint64_t used = 0;
  std::optional<std::uint64_t> limit = std::nullopt;  // none: no limit of its own
};

// The use that one user makes of each resource with a limit per user. The control server fills in
// the connections and calls that it counts.
struct UserView {
  uid_t uid = 0;
  Use connections = {};
  Use control_connections = {};
  Use long_calls = {};
  Use listings = {};
  Use attaches = {};  // that wait for others
  Use unattached_bytes = {};
  Use unread_bytes = {};
  Use file_bytes = {};     // read and not yet processed
  Use listing_bytes = {};  // what the items of its datasets take in memory
  Use arena_bytes = {};
  Use pipelines = {};
  Use jobs = {};
  double cpu_s = 0;
};

// Seconds of all workers of the CPU pool together. They add up to the time that has passed, times
// the number of workers. engine::Idle says what each idle one is.
struct WorkersView {
  double rows_s = 0;     // making rows
  double batches_s = 0;  // opening batches
  // Idle for want of these:
  double bytes_s = 0;
  double memory_s = 0;
  double calls_s = 0;
  double stage_bound_s = 0;
  double job_bound_s = 0;
  double slot_s = 0;
  double yield_s = 0;
  double left_s = 0;
  double work_s = 0;
  // Of all these: ready to run, and waiting for a core; none: not known.
  std::optional<double> core_s = std::nullopt;
  // A quota kept the daemon from running, on all cores together; none: not known.
  std::optional<double> throttled_s = std::nullopt;
};

// A device that reads wait for: those that the page cache could answer are not among them. Times
// are means of the last reads.
struct StorageView {
  std::string device;  // "259:2"; "elsewhere": where links of a dataset lead
  std::string mount;   // where it is mounted; empty: not known
  std::uint32_t reading = 0;
  std::uint32_t stuck = 0;  // of these: for over a second
  std::uint32_t most = 0;   // that may be read at once, as things are
  std::uint64_t waiting = 0;
  std::uint64_t reads = 0;  // that have ended
  double queued_s = 0;      // for a thread
  double served_s = 0;
  double longest_s = 0;  // of those that are being read
};

// A process that calls a function of a user's, or a function that has none.
struct RunnerView {
  uid_t owner = 0;
  std::string call;
  std::string pool;          // RowCaller::wanted()
  pid_t supervisor = 0;      // as that and its children see themselves; 0: there is none
  std::uint32_t number = 0;  // among the supervisor's children
  pid_t pid = 0;             // 0: it has ended, or is yet to come
  std::uint64_t calls = 0;   // of all that had this number
  std::uint64_t rows = 0;
  std::uint64_t restarts = 0;
  // What a row takes there; none: there was none yet.
  std::optional<std::uint64_t> p50_us;
  std::optional<std::uint64_t> p99_us;
  std::optional<std::uint64_t> pss_bytes;  // none: not known
  std::string why;  // the last one ended; of a function without processes, what to start
};

// A GPU that the daemon sees.
struct GpuView {
  std::string uuid;  // empty: the driver does not tell, as `why_not` says
  std::string name;
  bool mig = false;
  std::string compute_mode;
  std::uint64_t memory_bytes = 0;
  std::string why_not;         // batches cannot be delivered to it; empty: they can
  std::string why_no_pinning;  // loaders there copy by a buffer; empty: from the slots
  bool context = false;
  std::uint64_t arena_used = 0;
  std::uint64_t arena_budget = 0;
};

// No new jobs are taken.
struct DrainView {
  std::uint64_t since_unix_ms = 0;
  uid_t by = 0;
  std::uint32_t ranks = 0;         // that are attached, or attaching
  std::uint32_t awaited_jobs = 0;  // whose ranks may yet come back to a daemon that has restarted
};

struct DrainBegun {
  DrainView drain;
  bool began = false;  // else it was in force already
};

struct DaemonView {
  std::string version;
  pid_t pid = 0;
  double uptime_s = 0;
  std::uint32_t cpu_threads = 0;
  std::uint32_t io_threads = 0;
  std::uint64_t arena_used = 0;
  std::uint64_t arena_idle = 0;  // of that: kept warm for consumers that may come back
  std::uint64_t arena_budget = 0;
  std::string arena_kind;
  std::string arena_note;  // what the kind does not protect against
  std::uint32_t sessions = 0;
  std::uint32_t jobs = 0;
  std::uint32_t pipelines = 0;
  std::uint64_t batches = 0;
  std::uint64_t rows = 0;
  // In the last seconds; none: not known.
  std::optional<double> batches_per_s = std::nullopt;
  std::optional<double> rows_per_s = std::nullopt;
  std::vector<std::string> warnings;  // state_dir is full, a cache was skipped ...
  DataPlaneView data = {};
  std::vector<CacheView> caches = {};
  JpegView jpeg = {};
  WorkersView workers = {};  // since the start
  // In the last seconds: seconds a second; none: not known.
  std::optional<WorkersView> workers_lately = std::nullopt;
  // None of these: not known.
  std::optional<CpuPriority> priority = std::nullopt;
  std::optional<std::uint64_t> pss_bytes = std::nullopt;
  std::optional<double> cpu_pressure = std::nullopt;  // a share of the last 10 s
  std::vector<StorageView> storage = {};
  std::vector<RunnerView> runners = {};
  std::vector<GpuView> gpus = {};
  std::string gpu_driver = {};                    // "CUDA 12.4"; empty: there is none
  std::string no_gpu = {};                        // why there is none; empty: there is one
  std::optional<DrainView> drain = std::nullopt;  // none: new jobs are taken
};

// A pipeline's classes in index order, and the numbers that its data have for them where those are
// others.
struct ClassesView {
  std::vector<std::string> names;
  std::vector<std::int64_t> category_ids;  // as many, or empty
};

}  // namespace spdld::session
