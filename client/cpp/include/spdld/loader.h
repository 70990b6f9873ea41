// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spdld/batch.h"
#include "spdld/error.h"

namespace spdld {

enum class Start {
  kFresh,   // epoch 0
  kLedger,  // where the daemon's record says that this shard was
};

// When the YAML that a loader sends takes the place of a pipeline of its name that differs.
enum class Replace {
  kNever,   // it is refused
  kUnread,  // if no job reads that one
  kAlways,  // also where only its data differ; jobs that read that one go on with it
};

// How to attach. What is not given comes from the launcher's environment, the pipeline or the job.
struct LoaderOptions {
  std::string pipeline = {};
  std::optional<std::string> job = {};  // none: the launcher's id, or private for a single process
  std::optional<std::int32_t> rank = {};
  std::optional<std::int32_t> world_size = {};
  std::optional<std::int32_t> shard = {};       // none: rank; -1: the daemon assigns one
  std::optional<std::int32_t> num_shards = {};  // none: world_size; -1: as the job has it
  std::int32_t replicas = 1;                    // consumers of one shard that see the same batches
  std::optional<std::int32_t> replica = {};     // which of them this is, from 0
  std::optional<std::int64_t> seed = {};
  std::optional<std::int64_t> batch_size = {};
  std::map<std::string, std::string> vars = {};
  std::string pipeline_yaml = {};  // applied if the daemon has no such pipeline
  Replace replace = Replace::kNever;
  std::string pipeline_file = {};  // absolute path of that YAML: its relative paths start there
  std::map<std::string, std::string> env = {};  // what ${env:NAME} in that YAML means here
  Start start = Start::kFresh;
  std::optional<Cursor> cursor = {};           // start here instead
  std::optional<std::uint32_t> prefetch = {};  // batches held or waiting; 2 to 64
  // "cuda" or "cuda:N": large fields come on that device of this process. "cuda" is device 0.
  // Empty or "cpu": all fields come in main memory.
  std::string device = {};
  std::string address = {};  // runtime directory; empty: $SPDLD_ADDRESS, else /run/spdld
  std::optional<std::uint32_t> incarnation = {};     // restart count; a newer one evicts older ones
  std::chrono::milliseconds timeout{60'000};         // of silence, and of reconnecting
  std::chrono::milliseconds connect_timeout{5'000};  // of the first connection
  std::string client_name = {};                      // shown by `spdlctl get sessions`

  // Called about every 100 ms of a wait; what it throws leaves next().
  std::function<void()> on_wait = {};
  // Told why a wait takes long, after 10 s and then every 30 s, and what the daemon warns of in the
  // pipeline. Empty: written to stderr.
  std::function<void(const std::string&)> on_notice = {};
  // Told before each further attempt that no daemon answers at the address, and why.
  std::function<void(const std::string&)> on_unreachable = {};
  // Starts a process that calls a function of this user's, of which the pipeline makes use: `python
  // -m spdld.runner --pool POOL --address` with the daemon's runtime directory, in an environment
  // that can import it. Returns at once. Empty: this process is not asked to.
  std::function<void(const std::string& pool)> start_runners = {};
};

// At which step a job changes to what is applied. The new pipeline makes its first batch beside the
// old one before anything changes; a point that has passed by then is refused.
enum class ApplyAt {
  kNow,        // the first step that no shard has begun
  kNextEpoch,  // the first epoch that no shard has begun
  kStep,       // ApplyOptions' epoch and step
};

struct ApplyOptions {
  ApplyAt at = ApplyAt::kNextEpoch;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool allow_schema_change = false;  // of names, dtypes or shapes of the fields
};

// What the daemon made of an apply.
struct Applied {
  std::uint32_t version = 0;  // of the pipeline, from `step` of `epoch` on
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool tuned = false;  // only what can be changed live was: nothing was made anew

  friend bool operator==(const Applied&, const Applied&) = default;
};

// Counted on this side, since the loader was opened.
struct LoaderStats {
  std::uint64_t batches = 0;
  std::uint64_t waits = 0;  // next() found no batch ready
  std::chrono::nanoseconds waited{0};
  // From a batch that next() gave until it was called again: the caller's own work.
  std::chrono::nanoseconds between{0};
  std::chrono::nanoseconds mapped{0};  // as mapped() was told
  std::uint64_t reconnects = 0;
  std::uint32_t held = 0;  // leases that the caller holds now
  std::uint32_t credits = 0;
  // Where the last batch handed out was brought: "host", to main memory alone; "pinned", to the
  // device by this process, from slots in main memory; "cuda ipc", to the device by the daemon.
  // Before the first one, as the daemon has said.
  std::string delivery = {};
  // Of a loader with a device: batches that this process's CPU copied to pinned memory first, as
  // the driver could not register the daemon's, and why it could not.
  std::uint64_t staged = 0;
  std::string staged_why = {};
};

// Reads one shard of a job. One thread at a time calls it; batches may be used and dropped on any
// thread. Attaching happens at the first call that needs the daemon. When the daemon goes away it
// reconnects by itself and goes on with the next batch: none lost, none twice. Throws spdld::Error.
// In a forked child it refuses to work: open another one there.
class SPDLD_API Loader {
 public:
  // Checks the options and finds the rank; talks to nobody yet.
  static Loader open(LoaderOptions options);

  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  // The next batch, or nothing at the end of an epoch: the call after that begins the next one.
  // After the job's last epoch it is nothing for ever.
  std::optional<Batch> next();
  // The same for a caller that reads ahead of its loop. `asks`: the daemon wants to be told, by
  // handed(), that the loop has come behind this batch; next() tells it by itself.
  std::optional<Batch> next_ahead(bool& asks);
  // The loop has been handed `turn` batches of the run (Cursor::turn). Waits for nothing.
  void handed(std::uint64_t turn);
  // A function that the caller runs on batches ahead of its loop took so long. The daemon is told
  // the sum, by which 'spdlctl diagnose' goes. On any thread, also during another call.
  void mapped(std::chrono::nanoseconds took);
  // Whether the job's last epoch is over.
  bool ended() const;

  // What next() gives comes from the start of `epoch`.
  void set_epoch(std::uint64_t epoch);
  // The epoch that next() is in, or will begin.
  std::uint64_t epoch() const;
  // Goes to a cursor that state() gave: the next call that needs the daemon attaches there anew.
  // Throws PipelineError if it is of another seed or order, as that call does where only the daemon
  // knows it.
  void load_state(const Cursor& cursor);
  // The position after the last batch that next() gave. Attaches if only the ledger knows it yet.
  Cursor state() const;
  // Leaves out the next `steps` steps of this epoch, at most to its end. Waits for the daemon,
  // which knows where that is.
  void skip_steps(std::uint64_t steps);

  // The job goes on with other variables of its pipeline, on all its shards, from one step on. All
  // ranks may say the same: it is done once. Waits until the new pipeline has made a batch; batches
  // that come meanwhile are given by next(). Whatever fails leaves the job as it was, and is
  // thrown.
  Applied apply(const std::map<std::string, std::string>& vars, const ApplyOptions& options = {});

  // Of the last batch handed out, and before the first one of the attach.
  std::uint64_t steps_per_epoch();
  std::uint64_t items();
  std::uint64_t batch_size();
  std::uint32_t pipeline_version();
  const std::vector<std::string>& classes();
  // What the rows of a batch are called, as its source names them: paths relative to the root of
  // `files`. One question to the daemon, which no batch carries the answer to. Throws PipelineError
  // if the job has gone on to other data meanwhile.
  std::vector<std::string> uris(const Batch& batch);
  // The same of dataset indices of a batch with this order_digest().
  std::vector<std::string> uris(std::span<const std::int64_t> indices,
                                const std::string& order_digest);
  // One line that is the same on every node that feeds the same data in the same order.
  std::string fingerprint();
  std::string server_stats();  // JSON
  LoaderStats stats() const;

  // As resolved: the rank's shard, the job's key.
  std::int32_t shard() const;
  std::int32_t num_shards() const;
  const std::string& job() const;
  const std::string& address() const;
  // What said rank and world size, for people: "RANK and WORLD_SIZE".
  const std::string& placed_by() const;

  // Detaches. Batches that are still held stay readable. Waits for streams that read batches in a
  // daemon's memory on a device; letting go of such a batch does so from then on.
  void close();
  bool closed() const;

 private:
  class Impl;
  explicit Loader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdld
