// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/users/credentials.h"
#include "engine/plan/plan_facts.h"
#include "op/image.h"
#include "op/jpeg_images.h"
#include "op/tensor_spec.h"
#include "session/step_at.h"

// What the session layer is asked and what it tells: plain values, which control/ turns into
// messages and nothing else keeps.
namespace spdld::session {

// Who asks, as the kernel told it when they connected.
using Caller = Peer;

struct ApplyRequest {
  std::string yaml;
  std::string file;  // for messages and relative paths: absolute, or "-" for a text without a file
  std::map<std::string, std::string> vars;
  std::map<std::string, std::string> env;  // what the submitter resolved ${env:NAME} to
  bool dry_run = false;
  // What was listed when it was applied, by the id that the catalogue's kept listings have for it.
  // Empty in what comes from a caller: that is listed now.
  std::string dataset = {};
  // The rows of a run of its order by length (ParseOptions::bucket_run), as they were fixed when it
  // was applied. None in what comes from a caller.
  std::optional<std::uint64_t> bucket_run = std::nullopt;
  // The size that images of a field have which are stacked without a stage that gives them one, as
  // some showed when it was applied. Empty in what comes from a caller.
  std::map<std::string, Size> image_sizes = {};
  bool from_loader = false;  // a loader brought it, and nobody has applied it
  // Who submitted it: the files that it names are read with their rights. None: a record of a
  // daemon that did not know; then as the user database has the pipeline's owner.
  std::optional<Credentials> reader = std::nullopt;
};

// At which step running jobs change to what is applied.
struct SwapAt {
  enum class Kind {
    kNow,        // the first step that no shard has begun
    kNextEpoch,  // the first epoch that no shard has begun
    kStep,       // `step`, and nothing else will do
  };
  Kind kind = Kind::kNextEpoch;
  StepAt step;
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

// A change of a job's version that lies ahead.
struct PlannedChange {
  std::uint32_t version = 0;
  StepAt from;

  friend bool operator==(const PlannedChange&, const PlannedChange&) = default;
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
  StepAt frontier;                    // the first step that no shard has begun
  std::uint64_t steps_per_epoch = 0;  // there
  // Of the fastest rank in the last seconds, and 1 at least; 0: no rank is attached; none: one of
  // them has only just come.
  std::optional<double> steps_per_s = std::nullopt;
  bool known = false;  // it runs that, or is to change to it there, already

  friend bool operator==(const SwapOutlook&, const SwapOutlook&) = default;
};

// What became of one job.
struct JobSwap {
  std::string job;
  std::string pipeline;
  std::uint32_t version = 0;  // that it runs from `from` on
  StepAt from;
  bool tuned = false;  // only live-tunable values differ: changed at once, nothing was rebuilt
  bool runs = false;   // it runs that since `from` already: nothing was changed
  std::vector<PlannedChange> replaces = {};  // what was to come, and does not now
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

enum class EpochMode { kAuto, kManual };

// What one job may take. Values that are not there: no limit of its own.
struct JobLimits {
  double weight = 1.0;                 // share of the CPU pool when jobs compete
  std::optional<std::uint32_t> cpus;   // workers at once
  std::optional<std::uint64_t> bytes;  // of arenas

  friend bool operator==(const JobLimits&, const JobLimits&) = default;
};

// A job as a caller names it.
struct JobName {
  std::string job = {};
  std::vector<std::string> pipelines = {};  // their ids, the first counts most; empty: any
  // As an admin may write it, USER/JOB: what else `job` may mean.
  struct OfUser {
    uid_t uid = 0;
    std::string job = {};
  };
  std::optional<OfUser> of_user = std::nullopt;
};

// What was deleted.
struct DeletedJob {
  std::string pipeline = {};  // that the job ran
  bool had_ended = false;     // only what was kept of it was there
};

// What is to change of them.
struct LimitChange {
  std::optional<double> weight;
  std::optional<std::uint32_t> cpus;   // 0: no limit
  std::optional<std::uint64_t> bytes;  // 0: no limit
};

struct JobRequest {
  std::string job;
  std::string pipeline;
  std::uint32_t num_shards = 1;
  std::uint32_t replicas = 1;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> batch_size;
  std::map<std::string, std::string> vars;
  EpochMode epochs = EpochMode::kAuto;
  std::uint64_t max_epochs = 0;  // 0: no end
  JobLimits limits = {};
};

// A consumer's place in a job: one per shard and replica.
struct ShardView {
  std::uint32_t shard = 0;
  std::uint64_t session = 0;  // 0: nobody is attached
  pid_t pid = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // the next one to be handed out
  std::uint32_t replica = 0;
};

// What a job runs from a step on.
struct PhaseView {
  StepAt from;
  std::uint32_t pipeline_version = 0;
  std::uint64_t batch_size = 0;
  std::map<std::string, std::string> vars;
};

// Up to where every shard has given back what it was handed: where start="ledger" begins.
struct LedgerView {
  StepAt at;
  std::uint64_t position = 0;
  std::uint64_t kept_unix_ms = 0;  // 0: nothing is on disk yet
  std::string conflict;            // how a consumer's own cursor differed, the last time one did
};

// How a job ended that is running no more.
struct EndView {
  std::uint64_t unix_ms = 0;
  std::string how;  // "done", or why not
  StepAt at;        // the next step that would have been handed out
};

// Up to where all ranks read on when an operator has sent the job elsewhere.
struct SeekView {
  StepAt from;
  StepAt to;  // where they go on then
};

struct JobView {
  std::string job;
  std::string pipeline;
  uid_t owner = 0;
  std::uint32_t pipeline_version = 0;
  bool declared = false;  // made over gRPC, not by its first rank
  std::uint32_t num_shards = 0;
  StepAt dealt_from;  // from where on rows are dealt out as they are now
  std::uint32_t replicas = 1;
  std::uint64_t seed = 0;
  std::uint64_t batch_size = 0;
  EpochMode epochs = EpochMode::kAuto;
  std::uint64_t open_epochs = 0;  // manual: epochs [0, open_epochs) may be read
  std::uint64_t max_epochs = 0;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t items = 0;
  std::uint64_t replaced = 0;  // distinct items that were replaced
  std::uint64_t replace_budget = 0;
  JobLimits limits = {};
  std::uint64_t arena_bytes = 0;
  double cpu_s = 0;                                 // spent on its rows
  std::uint64_t shared_rows = 0;                    // that another job had made already
  std::uint64_t cache_hits = 0;                     // rows made from what the sample cache had
  double saved_cpu_s = 0;                           // what both would have cost
  std::uint64_t rows = 0;                           // that its consumers were handed
  std::optional<double> rows_per_s = std::nullopt;  // in the last seconds; none: not known
  std::vector<PhaseView> phases = {};               // in order; the last ones may lie ahead
  LedgerView ledger = {};
  std::vector<SeekView> seeks = {};  // in order: that not all are known to have gone along with
  std::vector<ShardView> shards = {};
  std::optional<EndView> end = std::nullopt;  // none: it runs, or is declared
};

struct SessionView {
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
  std::uint32_t shard = 0;
  std::uint32_t num_shards = 0;
  std::uint32_t replica = 0;
  std::uint32_t pipeline_version = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint32_t credits = 0;
  std::uint32_t leases = 0;
  std::uint32_t ready = 0;                          // finished batches that wait for a credit
  std::optional<double> rows_per_s = std::nullopt;  // in the last seconds; none: not known
  std::uint64_t batches = 0;
  std::uint64_t arena_bytes = 0;
  std::string gpu = {};  // UUID; empty: its batches lie in main memory
  double waited_s = 0;   // for batches, since its loader was opened; as its client says, like waits
  std::uint64_t waits = 0;
};

struct StageView {
  std::string job;
  std::string pipeline;
  std::string stage;  // "decode_image + random_resized_crop": fused ops are one stage
  std::uint64_t tasks = 0;
  std::uint64_t failures = 0;
  double busy_s = 0;
  double wait_s = 0;  // between being ready and being begun
  std::uint32_t in_flight = 0;
  std::uint32_t concurrency = 0;
  std::uint64_t p50_us = 0;
  std::uint64_t p99_us = 0;
  // In the last seconds; none: not known. The share is of `concurrency`.
  std::optional<double> rows_per_s = std::nullopt;
  std::optional<double> busy_share = std::nullopt;
  JpegImages jpeg = {};  // that it decoded
};

// A sample that could not be made.
struct FailedSample {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t item = 0;
  std::string uri;
  std::optional<std::uint64_t> replaced_by;  // the item that took its place

  friend bool operator==(const FailedSample&, const FailedSample&) = default;
};

struct FailureFacts {
  std::uint64_t unix_ms = 0;
  std::optional<FailedSample> sample;  // none: it was no single sample's fault
  std::string code;
  std::string message;
  bool ended_stream = false;  // those who read the stream were given nothing more

  friend bool operator==(const FailureFacts&, const FailureFacts&) = default;
};

struct FailureView {
  std::string job;
  std::string pipeline;
  FailureFacts facts = {};
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

// What one user holds of each resource that has a limit per user. The control server fills in the
// connections and calls that it counts.
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
  std::vector<GpuView> gpus = {};
  std::string gpu_driver = {};  // "CUDA 12.4"; empty: there is none
  std::string no_gpu = {};      // why there is none; empty: there is one
};

// A pipeline's classes in index order, and the numbers that its data have for them where those are
// others.
struct ClassesView {
  std::vector<std::string> names;
  std::vector<std::int64_t> category_ids;  // as many, or empty
};

// One batch as the model would see it, for `spdlctl preview`.
struct PreviewView {
  // Of a tensor that is not dense: where its rows lie in its data.
  struct Packed {
    std::vector<std::uint64_t> begins;  // of each row, and behind the last; in bytes
    std::vector<std::int64_t> shapes;   // of each row, if it is ragged
  };

  std::vector<TensorSpec> tensors;
  std::vector<std::vector<std::byte>> data;  // rows, per tensor
  std::vector<Packed> packed;                // per tensor
  std::vector<std::int64_t> indices;
  std::vector<std::string> uris;
  std::vector<std::string> classes;
};

}  // namespace spdld::session
