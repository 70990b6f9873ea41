// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/blocking_pool.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "delivery/arena_pool.h"
#include "delivery/data_server.h"
#include "engine/executor.h"
#include "pipeline/catalogue.h"
#include "pipeline/class_texts.h"
#include "pipeline/trial.h"
#include "session/job.h"
#include "store/store.h"
#include "stream/streams.h"

namespace spdld::session {

// The parts of the daemon that sessions work with; all outlive them.
struct SessionsDeps {
  pipeline::Catalogue& catalogue;
  engine::Executor& executor;
  delivery::ArenaPool& arenas;
  delivery::ArenaBudget& budget;
  delivery::Devices& devices;
  store::Store& store;
  const Clock& clock;
  delivery::ArenaKind arena_kind = delivery::ArenaKind::kMemfd;
  std::chrono::seconds retain{7 * 24 * 3600};  // what is known of jobs that have ended
  std::size_t jobs_per_user = 1024;            // declared or running; not of trusted users
  std::string address = "/run/spdld";          // where commands reach the daemon
  bool launched = false;                       // by a loader: it ends with those who read from it
};

// A swap of one job on its way: planned without a lock, then prepared, then committed or aborted.
// Between planning and the end Sessions::swapping() is held, so there is one at a time.
struct PlannedSwap {
  JobPtr job;
  pipeline::PhasePtr phase;                      // what it is to run
  std::map<std::string, std::string> vars = {};  // that its consumers have given by then
  bool known = false;  // it runs that already, or will: nothing is to be done
  bool tuned = false;  // nothing differs but what may be tuned at once
  pipeline::PhasePtr before =
      nullptr;            // the same content, up to the last change: that need only not come
  job::StepAt from = {};  // once it is placed
  std::optional<job::StepAt> runs_since = {};     // it runs that already: from there on
  std::optional<job::StepAt> planned = {};        // where it was to come, if that is earlier
  std::vector<job::PlannedChange> replaces = {};  // what was to come from then on
  bool by_consumer = false;                       // who asks has no command line
  bool allow_schema_change = false;
  pipeline::PhasePtr base = nullptr;  // what it ran, or was to run, last when this was planned
  std::optional<SwapOutlook> outlook = {};  // after look_ahead()

  // Nothing is built: the last change does not come, and the job goes on as it runs up to there.
  bool drops() const { return before != nullptr && phase == before; }
};

// The variables that a job is to run with.
struct SwapVars {
  std::map<std::string, std::string> own;  // that its consumers have given
  std::set<std::string> overrides;         // of which those count that the pipeline has
};

// The jobs and who is attached to them. Answers consumers on the dispatcher's thread; what may
// block goes to a pool of its own. Operators come in through SessionService, from gRPC's threads.
// Thread-safe. Owned by the daemon; stop() before the executor goes.
class Sessions final : public delivery::DataService {
 public:
  explicit Sessions(SessionsDeps deps);
  ~Sessions() override;

  // Declared jobs that an earlier daemon kept. Before the first consumer comes. What cannot go on
  // is logged and told to `warn`, and its ranks are refused with the reason until it is deleted.
  Status restore(const std::function<void(std::string)>& warn) SPDLD_EXCLUDES(mutex_);
  // Before consumers are told good-bye: jobs are kept as they are, for the next daemon to go on
  // with, and who leaves from now on is expected back there.
  void suspend() SPDLD_EXCLUDES(mutex_);
  // Ends every session and waits for attaches under way.
  void stop() SPDLD_EXCLUDES(mutex_);
  // Every few seconds: tells those who wait why, and that the daemon lives.
  void heartbeat() SPDLD_EXCLUDES(mutex_);
  // Every second: looks at the counters that rates are told of, keeps positions, and looks after
  // shared streams. Returns at once.
  void tick() SPDLD_EXCLUDES(mutex_);
  // Writes what has changed of the jobs since the last time, as tick() has it done.
  void keep() SPDLD_EXCLUDES(mutex_);
  // Closes the pipelines that nobody has used for some minutes, if it is time; as tick() has it
  // done.
  void close_unused() SPDLD_EXCLUDES(mutex_);
  // Work of others that may block; dropped once the daemon stops.
  void run_slowly(BlockingPool::Task task) { slow_.post(std::move(task)); }
  // What operators are to know: that positions cannot be kept, say.
  std::vector<std::string> warnings() const SPDLD_EXCLUDES(mutex_);
  // Consumers that are attached, or attaching.
  std::size_t attached() const SPDLD_EXCLUDES(mutex_);

  // delivery::DataService
  void attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) override;
  void release(delivery::Connection& connection, std::uint64_t lease) override;
  void seek(delivery::Connection& connection, const delivery::SeekRequest& request) override;
  void query(delivery::Connection& connection, const delivery::QueryRequest& request) override;
  void apply(delivery::Connection& connection, const delivery::ApplyWish& wish) override;
  void waited(delivery::Connection& connection, const delivery::WaitedNotice& notice) override;
  void detach(delivery::Connection& connection) override;
  void closed(delivery::Connection& connection, delivery::CloseCause cause) override;
  void exited(delivery::Connection& connection) override;

  // For SessionService. Visible are a caller's own jobs, and to admins all.
  Result<job::JobView> create_job(const job::Caller& caller, const JobRequest& request,
                                  const pipeline::Catalogue::Progress& progress = nullptr)
      SPDLD_EXCLUDES(mutex_);
  Result<job::JobView> job(const job::Caller& caller, const JobName& name) const
      SPDLD_EXCLUDES(mutex_);
  std::vector<job::JobView> jobs(const job::Caller& caller) const SPDLD_EXCLUDES(mutex_);
  Result<job::JobView> advance_epoch(const job::Caller& caller, const JobName& name,
                                     std::optional<std::uint64_t> to) SPDLD_EXCLUDES(mutex_);
  Result<job::JobView> seek_job(const job::Caller& caller, const JobName& name, job::StepAt to)
      SPDLD_EXCLUDES(mutex_);
  Result<job::JobView> resize_job(const job::Caller& caller, const JobName& name,
                                  std::uint32_t num_shards) SPDLD_EXCLUDES(mutex_);
  Result<job::JobView> skip_steps(const job::Caller& caller, const JobName& name,
                                  std::uint64_t steps) SPDLD_EXCLUDES(mutex_);
  Result<job::JobView> limit_job(const job::Caller& caller, const JobName& name,
                                 const LimitChange& change) SPDLD_EXCLUDES(mutex_);
  Result<DeletedJob> delete_job(const job::Caller& caller, const JobName& name)
      SPDLD_EXCLUDES(mutex_);
  std::vector<SessionView> sessions(const job::Caller& caller) const SPDLD_EXCLUDES(mutex_);
  Status evict(const job::Caller& caller, std::uint64_t session, const std::string& reason)
      SPDLD_EXCLUDES(mutex_);
  std::vector<job::StageView> stages(const job::Caller& caller) const SPDLD_EXCLUDES(mutex_);
  // Of running jobs and, for as long as these are kept, ended ones; oldest first.
  std::vector<FailureView> failures(const job::Caller& caller, const std::string& job) const
      SPDLD_EXCLUDES(mutex_);
  // How each job ended the last time, the latest first.
  std::vector<store::StoredEnd> ended(const job::Caller& caller) const SPDLD_EXCLUDES(mutex_);
  // Jobs that run it, by version.
  std::map<std::uint32_t, std::uint32_t> jobs_on(const std::string& pipeline) const
      SPDLD_EXCLUDES(mutex_);
  // Whether a job runs its version, or is to, in any other phase than this one.
  bool has_other_phase(const pipeline::Phase& phase) const SPDLD_EXCLUDES(mutex_);
  struct Totals {
    std::uint32_t sessions = 0;
    std::uint32_t jobs = 0;
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    // In the last seconds; none: not known.
    std::optional<double> batches_per_s = std::nullopt;
    std::optional<double> rows_per_s = std::nullopt;
  };
  Totals totals() const SPDLD_EXCLUDES(mutex_);
  // Of all arenas that consumers see.
  delivery::SlotTable::Counts slot_counts() const SPDLD_EXCLUDES(mutex_);
  // Adds what users have in attaches, jobs and CPU time: shares.cpp.
  void count_users(std::map<uid_t, UserView>& users) const SPDLD_EXCLUDES(mutex_);

  // What each of the jobs would run, tried out by making a batch of it. Slow.
  Result<std::vector<PlannedSwap>> plan_swaps(const job::Caller& caller,
                                              const pipeline::PipelinePtr& pipeline,
                                              const SwapRequest& request,
                                              const pipeline::Catalogue::Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  // Jobs that it would give other content than they have come to, were they changed as `request`
  // says. Parses what is new to them.
  std::vector<StayingJob> staying(const job::Caller& caller, const pipeline::PipelinePtr& pipeline,
                                  const SwapRequest& request,
                                  const pipeline::Catalogue::Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  // All shards of all the jobs make ready, each job at a step of its own, and go no further; or
  // nothing is done.
  Status prepare_swaps(std::vector<PlannedSwap>& swaps, const SwapAt& at) SPDLD_EXCLUDES(mutex_);
  // Whether prepare_swaps() would find a step for each of the jobs, and where that lies ahead.
  // Makes nothing ready.
  Status look_ahead(std::vector<PlannedSwap>& swaps, const SwapAt& at) SPDLD_EXCLUDES(mutex_);
  // How the jobs are kept once it is committed; private ones are not.
  std::vector<store::StoredJob> stored_after(const std::vector<PlannedSwap>& swaps) const
      SPDLD_EXCLUDES(mutex_);
  // Whether they can be committed: what was made ready may have failed since.
  Status check_prepared(const std::vector<PlannedSwap>& swaps) const SPDLD_EXCLUDES(mutex_);
  void commit_swaps(const std::vector<PlannedSwap>& swaps) SPDLD_EXCLUDES(mutex_);
  void abort_swaps(const std::vector<PlannedSwap>& swaps) SPDLD_EXCLUDES(mutex_);

  // Held while a job changes and its record with it, so that keep() does not write an older one
  // over that. Taken between swapping() and mutex_. Whoever has it may wait for the disk: no rank
  // that reads, attaches or leaves takes it, but one whose pipeline takes another one's place.
  Mutex& records() SPDLD_RETURN_CAPABILITY(records_) { return records_; }
  // Held from planning swaps until they are committed or aborted: one at a time.
  Mutex& swapping() SPDLD_RETURN_CAPABILITY(swapping_) { return swapping_; }

  // Writes the pipelines that loaders have brought since the last time, before anything else is
  // written of pipelines.
  Status keep_brought() SPDLD_REQUIRES(records_) SPDLD_EXCLUDES(mutex_);

  const SessionsDeps& deps() const { return deps_; }
  pipeline::Trials& trials() { return trials_; }
  // How a pipeline that a loader brings takes the place of another one. Set before the first
  // consumer comes.
  using Replacing = std::function<Result<pipeline::PipelinePtr>(
      const job::Caller& caller, const pipeline::PipelinePtr& built,
      const pipeline::Catalogue::Progress& progress)>;
  void set_replacing(Replacing replacing) { replacing_ = std::move(replacing); }

 private:
  // What is told of a private job that has ended.
  struct EndedPrivately {
    job::JobKey key;
    store::StoredEnd end;
    std::vector<engine::LoggedFailure> failures;
  };
  static constexpr std::size_t kMostEndedPrivately = 200;
  static constexpr std::size_t kMostEndedPrivatelyOfUser = 50;
  void keep_privately(const Job& job, store::StoredEnd end) SPDLD_REQUIRES(mutex_);

  // Attaching, on the blocking pool: attach.cpp, attach_pipeline.cpp, join.cpp.
  void attach_slowly(const SessionPtr& session, const delivery::AttachRequest& request);
  Status try_attach(const SessionPtr& session, delivery::AttachRequest request);
  // Tells a consumer how far what it waits for has come.
  static pipeline::Catalogue::Progress progress_to(const SessionPtr& session);
  // On which of these pipelines this user's job goes on, if it does: it stays there, though a name
  // may mean another one by now.
  Result<std::optional<std::string>> pipeline_of_job(const std::vector<std::string>& ids, uid_t uid,
                                                     const delivery::AttachRequest& request)
      SPDLD_EXCLUDES(mutex_);
  // The pipeline that there is for what a loader brings, which says `text`; null: it is to be made.
  // Where that has variables which the loader leaves out, they are added to the request's, as its
  // file has them.
  Result<pipeline::PipelinePtr> known_pipeline(const job::ApplyRequest& submitted,
                                               const pipeline::PipelineText& text, uid_t uid,
                                               delivery::AttachRequest& request)
      SPDLD_EXCLUDES(mutex_);
  bool may_replace(const std::string& id, const delivery::AttachRequest& request) const
      SPDLD_EXCLUDES(mutex_);
  Result<pipeline::PipelinePtr> brought_by(const SessionPtr& session,
                                           delivery::AttachRequest& request) SPDLD_EXCLUDES(mutex_);
  // Before a loader of this user puts one more pipeline: at the limit, one that no job runs is
  // removed. kResourceExhausted if jobs run all of them: shares.cpp.
  Status make_room_for_brought(uid_t uid) SPDLD_EXCLUDES(mutex_);
  bool is_run_or_expected(const std::string& pipeline) const SPDLD_EXCLUDES(mutex_);
  Result<pipeline::PipelinePtr> pipeline_for(const SessionPtr& session,
                                             delivery::AttachRequest& request);
  // The data of the session's job may have been moved or replaced since they were opened. Returns
  // what the job runs last.
  pipeline::PipelinePtr look_at_data(const SessionPtr& session) SPDLD_EXCLUDES(mutex_);
  // The job that the request means, and the session's place in it. `revived` is what is known of it
  // from before, if anything is; `pipeline` is what it has otherwise, as the request wants it.
  // False: the session waits without a thread, and attach_slowly() is called again for it.
  Result<bool> claim(const SessionPtr& session, const job::JobKey& key,
                     const Result<pipeline::PipelinePtr>& pipeline,
                     const delivery::AttachRequest& request, const JobPtr& revived,
                     const stream::Readings& readings) SPDLD_EXCLUDES(mutex_);
  Result<bool> claim(const SessionPtr& session, const job::JobKey& key,
                     const Result<pipeline::PipelinePtr>& pipeline,
                     const delivery::AttachRequest& request, const JobPtr& revived,
                     const stream::Readings& readings,
                     const std::optional<store::StoredPosition>& ledger, KeptFailures failures)
      SPDLD_REQUIRES(mutex_);
  // Whether there is no such job, or the request's restart takes its place.
  bool makes_job(const job::JobKey& key, const delivery::AttachRequest& request) const
      SPDLD_REQUIRES(mutex_);
  // What a job that is there already runs, for this reader: readings.cpp. kPermissionDenied where
  // they may not read it. Empty: it is the one with whose rights the job reads.
  Result<stream::Readings> readings_for(const job::JobKey& key, const Credentials& reader,
                                        const pipeline::Catalogue::Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  // Whether a job may go on so; `alone`: those who read it are about to be evicted.
  static Status check_reader(const Job& job, const Credentials& reader,
                             const stream::Readings& readings, bool alone);
  // The GPU that a consumer names, for a phase of its job that delivers there: gpus.cpp. Takes its
  // time, begins the GPU's context if nobody has, and does nothing where the consumer has it.
  // Refused, or told as a warning, where it cannot be had.
  Status open_gpu(const SessionPtr& session, const pipeline::Phase& phase) SPDLD_EXCLUDES(mutex_);
  Status open_gpu(const SessionPtr& session) SPDLD_EXCLUDES(mutex_);  // for all of its job
  // Likewise of consumers of a job that somebody changes.
  Status open_gpus(const JobPtr& job, const pipeline::Phase& phase) SPDLD_EXCLUDES(mutex_);
  Status open_gpu_of_job(const SessionPtr& session, const pipeline::Phase& phase)
      SPDLD_EXCLUDES(mutex_);
  // Whether that was done: only then may the consumer read the phase.
  static bool has_opened_gpu(const Session& session, const pipeline::Phase& phase);
  // The session's consumer at its streams, where its job and the request place it.
  Result<std::shared_ptr<Consumer>> connect(const Session& session,
                                            const delivery::AttachRequest& request,
                                            bool gpu_may_have_room, stream::DeviceReserve& reserve)
      SPDLD_REQUIRES(mutex_);
  void welcome(const Session& session) const SPDLD_REQUIRES(mutex_);
  // Sends the consumer on its way: the last word, whatever fails has failed before. False: its job
  // is to run what open_gpu() has not been called for. With `gpu_may_have_room`, a full GPU is
  // refused also where main memory would do. The second one fails where the reserve lacks memory on
  // the GPU.
  Result<bool> begin(const SessionPtr& session, const delivery::AttachRequest& request,
                     bool gpu_may_have_room) SPDLD_EXCLUDES(mutex_);
  Result<bool> begin(const SessionPtr& session, const delivery::AttachRequest& request,
                     bool gpu_may_have_room, stream::DeviceReserve& reserve) SPDLD_EXCLUDES(mutex_);
  // The same, once its GPU has room: what a consumer has that has just left is given back after it.
  Result<bool> begin_with_room(const SessionPtr& session, const delivery::AttachRequest& request)
      SPDLD_EXCLUDES(mutex_);
  bool may_get_room(const Session& session) const SPDLD_EXCLUDES(mutex_);
  Result<JobPtr> join_job(const job::JobKey& key, const Result<pipeline::PipelinePtr>& pipeline,
                          const delivery::AttachRequest& request, const JobPtr& revived,
                          const Credentials& reader, const stream::Readings& readings,
                          KeptFailures failures) SPDLD_REQUIRES(mutex_);
  static Status check_facts(const Job& job, const delivery::AttachRequest& request);
  static Status check_shard(const Job& job, const delivery::AttachRequest& request);
  static bool finishes_shard(const Job& job, const delivery::AttachRequest& request);
  static Status taken_by(const Session& holder, const Job& job, const Session& asks);
  Status claim_shard(const SessionPtr& session, const JobPtr& job,
                     const delivery::AttachRequest& request) SPDLD_REQUIRES(mutex_);
  // Where a consumer begins: place.cpp.
  struct Place {
    job::StepAt at;
    std::optional<std::uint64_t> position = std::nullopt;  // as its cursor says
    bool follows = false;
    std::uint32_t moves = 0;    // of the job, that it has gone along with there
    std::uint32_t passage = 0;  // of the job, that this is in
  };
  static Status check_cursor(const Job& job, const stream::Timeline& timeline,
                             const delivery::AttachRequest& request);
  // `order` is Phase::order_text() of where the place comes from; empty: not to be checked.
  static Status check_place(const Job& job, const stream::Timeline& timeline,
                            const std::string& order, job::StepAt at, std::uint64_t position);
  static Result<Place> place_of(Job& job, job::Member member,
                                const delivery::AttachRequest& request);
  // Whether the attach goes on once a change of its job is on disk.
  bool waits_for_write(const job::JobKey& key, const SessionPtr& session,
                       const delivery::AttachRequest& request) SPDLD_REQUIRES(mutex_);
  // The attach goes on with attach_again_waiting(); meanwhile its consumer is told the reason.
  static void wait(Job& job, const SessionPtr& session, const delivery::AttachRequest& request,
                   std::string reason);
  // Whether a fresh rank must wait. Nobody is attached, and a resize brought its shard in the
  // middle of the run. A rank that comes back continues that run; a fresh rank of an older shard
  // begins a new one. Only then is it known where this rank begins.
  bool waits_for_others(const Job& job, const delivery::AttachRequest& request) const
      SPDLD_REQUIRES(mutex_);
  static void end_members(Job& job, const job::Caller& caller);
  void attach_again_waiting(Job& job) SPDLD_REQUIRES(mutex_);
  // A loader has brought it, and it is not on disk yet.
  bool is_brought(const std::string& pipeline) const SPDLD_REQUIRES(mutex_);
  // The session does not wait to attach any more.
  void stop_waiting(const SessionPtr& session) SPDLD_REQUIRES(mutex_);
  // Whether the run goes on at a cursor's place as it is. If not, all ranks have gone back to a
  // saved state, or have come in another world, and what follows is dealt out anew.
  static bool continues_run(const Job& job, std::optional<job::Member> member, job::StepAt at,
                            std::uint64_t position);
  // The first consumer of a job, or of a new run of it, decides where all begin.
  Status place_first(Job& job, job::Member member, const delivery::AttachRequest& request,
                     const std::optional<store::StoredPosition>& ledger) SPDLD_REQUIRES(mutex_);

  // Jobs and what is kept of them: records.cpp.
  // Drops ended streams if their caches take the room that this one needs.
  Result<std::shared_ptr<engine::SampleCache>> open_cache(
      const pipeline::PipelineVersion& pipeline);
  Result<pipeline::PhasePtr> make_phase(const pipeline::PipelinePtr& pipeline, std::uint64_t seed,
                                        std::set<std::string> overrides = {});
  Result<JobPtr> make_job(job::JobKey key, stream::Timeline timeline, std::uint64_t seed,
                          bool is_private, KeptFailures failures);
  Result<JobPtr> make_job(job::JobKey key, const pipeline::PipelinePtr& pipeline,
                          std::uint64_t seed, std::uint32_t num_shards, bool is_private,
                          KeptFailures failures);
  // `reader`: who reads it from now on; none: who did when it was kept.
  Result<JobPtr> rebuild(const store::StoredJob& stored,
                         const std::optional<Credentials>& reader = std::nullopt);
  // As it was kept last; none: nothing is known of it.
  Result<std::optional<store::StoredJob>> kept_job(const job::JobKey& key) SPDLD_EXCLUDES(mutex_);
  static bool goes_on_with(const store::StoredJob& stored, const delivery::AttachRequest& request);
  // What an earlier daemon, or an earlier run of the job, left on disk, as far as this request goes
  // on with it; null: it begins anew, or runs here.
  Result<JobPtr> revive(const job::JobKey& key, const delivery::AttachRequest& request,
                        const Credentials& reader) SPDLD_EXCLUDES(mutex_);
  KeptFailures kept_failures(const job::JobKey& key) SPDLD_EXCLUDES(mutex_);
  // The same job in another world or with another batch size, from where the request begins. None:
  // it is another job.
  Result<JobPtr> inherit(store::StoredJob stored, const delivery::AttachRequest& request,
                         const Credentials& reader);
  Result<std::optional<store::StoredPosition>> kept_position(const job::JobKey& key);
  // What is not on disk as it is now.
  struct Unkept {
    struct Changed {
      JobPtr job;
      std::vector<job::MemberRecord> members;  // in its record, as the next one is
      std::uint64_t last_failure = 0;
      std::size_t replaced = 0;
      bool new_run = false;
      // How far its consumers may go once the record is on disk.
      struct Grant {
        std::shared_ptr<Consumer> consumer;
        std::uint64_t turn = 0;
        std::uint64_t sent = 0;
        std::uint64_t ahead = 0;
      };
      std::vector<Grant> grants = {};
    };
    std::vector<store::StoredJob> records;
    std::vector<store::StoredPosition> positions;
    std::size_t ended_jobs = 0;  // so many of the first ones are of jobs that have ended
    std::size_t ended_positions = 0;
    std::set<uid_t> ended_users;   // whose jobs have ended
    std::vector<Changed> changed;  // whose records are among the others
    struct Moved {
      JobPtr job;
      std::uint64_t rewinds = 0;
    };
    std::vector<Moved> moved;  // whose positions are
  };
  Unkept unkept(std::uint64_t now) SPDLD_EXCLUDES(mutex_);
  // One record that no text can be made of must not keep the others from the disk.
  void leave_out_unwritable(std::vector<store::StoredJob>& records) SPDLD_REQUIRES(records_);
  // A user's ended jobs are known as long as they are among the last that limits.jobs allows.
  Status forget_ended_beyond_share(const Unkept& kept) SPDLD_EXCLUDES(mutex_);
  Status forget_old(std::uint64_t now) SPDLD_EXCLUDES(mutex_);  // every hour
  Status forget_listings() SPDLD_EXCLUDES(mutex_);
  // A change of a job: from begin_change() until end_change() nobody attaches to it. Its members
  // may leave.
  struct Change {
    JobPtr job;
    JobState next;
    std::optional<job::StepAt> begins = std::nullopt;         // the first step that it changes
    std::optional<Job::Acknowledged> goes_to = std::nullopt;  // where the job is sent, if it is

    // Moves the members' frontiers as the change does.
    void apply_to(job::Membership& members) const;
  };
  Change begin_change(const JobPtr& job) SPDLD_REQUIRES(mutex_, records_);
  // On disk when it returns.
  Status write(const Change& change) SPDLD_REQUIRES(records_) SPDLD_EXCLUDES(mutex_);
  // If it was written, it counts from now on. A job that all have left meanwhile ends.
  void end_change(Change& change, const Status& written) SPDLD_REQUIRES(mutex_, records_);
  // Ends the job's write: attaches that waited for it go on.
  void end_write(Job& job) SPDLD_REQUIRES(mutex_);
  // Returns once no change of the job is being written.
  void await_written(const job::JobKey& key) SPDLD_REQUIRES(mutex_);
  void await_written(const std::vector<PlannedSwap>& swaps) SPDLD_REQUIRES(mutex_);
  // What is not on disk yet of a job that gives way to its next run, or ends.
  void push_ended(const Job& job) SPDLD_REQUIRES(mutex_);
  // keep(), soon, on a thread of its own. Returns at once.
  void keep_soon();
  // What is not on disk yet of jobs that have ended.
  void forget_ended(const job::JobKey& key) SPDLD_REQUIRES(mutex_, records_);

  // Which job is meant: job_names.cpp.
  // The one of these that the caller means; none: no such job is among them.
  Result<std::optional<job::JobKey>> meant(const job::Caller& caller, const JobName& name,
                                           std::vector<job::JobKey> keys) const;
  Result<JobPtr> find_job(const job::Caller& caller, const JobName& name) const
      SPDLD_REQUIRES(mutex_);
  // Forgets what an ended job left behind; none: there is no such job.
  Result<std::optional<job::JobKey>> forget_job(const job::Caller& caller, const JobName& name)
      SPDLD_REQUIRES(records_) SPDLD_EXCLUDES(mutex_);

  // Operating: operate.cpp, move.cpp, and of swaps swap_plan.cpp, swap.cpp, apply.cpp.
  // Nothing of the job is begun until go_on(). The first step that no shard has begun; the job's
  // timeline is then what its furthest consumer reads by.
  static job::StepAt hold(Job& job);
  static void go_on(const Job& job);
  // Another deal of the rows from the first step that no shard has begun.
  struct Deal {
    Change change;
    job::StepAt from;
    std::uint64_t position = 0;  // at which `from` begins
    std::uint64_t left_out = 0;  // steps of the deal before
    bool grows = false;
  };
  // Without `shards`: as many as there are. The job is held until deal_anew().
  Result<Deal> plan_deal(const job::Caller& caller, const JobName& name,
                         std::optional<std::uint32_t> shards, std::uint64_t skip)
      SPDLD_REQUIRES(records_) SPDLD_EXCLUDES(mutex_);
  Result<job::JobView> deal_anew(Deal deal) SPDLD_REQUIRES(records_) SPDLD_EXCLUDES(mutex_);
  Status check_resize(const Job& job, std::uint32_t num_shards) const SPDLD_REQUIRES(mutex_);
  // The job is held until go_on().
  Result<Change> plan_seek(const job::Caller& caller, const JobName& name, job::StepAt to)
      SPDLD_REQUIRES(records_) SPDLD_EXCLUDES(mutex_);
  Result<Change> plan_epochs(const job::Caller& caller, const JobName& name,
                             std::optional<std::uint64_t> to) SPDLD_REQUIRES(records_)
      SPDLD_EXCLUDES(mutex_);
  Result<Change> plan_limits(const job::Caller& caller, const JobName& name,
                             const LimitChange& wanted) SPDLD_REQUIRES(records_)
      SPDLD_EXCLUDES(mutex_);
  // The step that is meant, whether or not the job can change there.
  static Result<job::StepAt> asked_step(const Job& job, const stream::Timeline& timeline,
                                        const SwapAt& at, job::StepAt frontier);
  static bool says_nothing_new(const PlannedSwap& swap);
  static Status check_feeds_all(const PlannedSwap& swap);
  // The job's timeline if the last change of its phase did not come.
  static stream::Timeline without_last_change(const Job& job);
  // `timeline`: what the job runs without it.
  static Status check_swap(const PlannedSwap& swap, const stream::Timeline& timeline,
                           job::StepAt frontier);
  static Status place_swap(PlannedSwap& swap, const SwapAt& at, job::StepAt frontier);
  std::vector<JobPtr> jobs_of(const job::Caller& caller, const std::string& pipeline) const
      SPDLD_REQUIRES(mutex_);
  // With which variables a job would be changed.
  SwapVars vars_for(const Job& job, const SwapRequest& request) const SPDLD_REQUIRES(mutex_);
  // The pipeline as the job would run it, with whose rights its consumers read.
  Result<pipeline::PipelinePtr> variant_for(
      const pipeline::PipelinePtr& pipeline, const SwapVars& vars,
      std::optional<std::uint64_t> batch_size, const Credentials& reader,
      const pipeline::Catalogue::Progress& progress,
      pipeline::VariantFiles files = pipeline::VariantFiles::kAsListed);
  Result<PlannedSwap> plan_swap(const JobPtr& job, const pipeline::PipelinePtr& pipeline,
                                const SwapVars& vars, const SwapRequest& request,
                                const pipeline::Catalogue::Progress& progress,
                                pipeline::VariantFiles files = pipeline::VariantFiles::kAsListed)
      SPDLD_EXCLUDES(mutex_);
  bool runs(const JobPtr& job) const SPDLD_REQUIRES(mutex_);  // nobody deleted or replaced it
  // Holds the job and places its swap. The first step that no shard has begun.
  Result<job::StepAt> hold_and_place(PlannedSwap& swap, const SwapAt& at) SPDLD_REQUIRES(mutex_);
  Status prepare_swap(PlannedSwap& swap, const SwapAt& at, stream::DeviceReserve& reserve)
      SPDLD_REQUIRES(mutex_);
  Status look_ahead(PlannedSwap& swap, const SwapAt& at) SPDLD_REQUIRES(mutex_);
  // A consumer that attached after the swaps were planned, and so has no GPU open for this phase of
  // them.
  struct Unopened {
    SessionPtr session;
    pipeline::PhasePtr phase;
  };
  static std::vector<Unopened> unopened(const std::vector<PlannedSwap>& swaps);
  Status prepare_opened(std::vector<PlannedSwap>& swaps, const SwapAt& at,
                        stream::DeviceReserve& reserve) SPDLD_REQUIRES(mutex_);
  Status check_runs(const PlannedSwap& swap) const SPDLD_REQUIRES(mutex_);
  void abort_swap(const PlannedSwap& swap) SPDLD_REQUIRES(mutex_);
  // What consumers ask for, on a thread of its own: one change after the other, users in turns.
  void answer_apply(const SessionPtr& session, const delivery::ApplyWish& wish)
      SPDLD_EXCLUDES(mutex_);
  Result<PlannedSwap> apply_vars(const SessionPtr& session, const delivery::ApplyWish& wish)
      SPDLD_EXCLUDES(mutex_);
  // One that has yet to come to where the last seek of the job takes it elsewhere, if any has.
  static SessionPtr yet_to_jump(const Job& job);
  // Fails while the job cannot be changed: a swap is prepared, a consumer has not come back yet, or
  // a consumer has not reached the place of a seek. The last two fail with `not_yet`.
  Status check_settled(const Job& job, Code not_yet = Code::kFailedPrecondition) const
      SPDLD_REQUIRES(mutex_);
  // For so long after a start, consumers that an earlier daemon had are expected back.
  static constexpr std::chrono::seconds kComeBack{60};
  std::chrono::seconds come_back_s() const;  // so much of it is left
  bool awaits(const Job& job) const;

  // Answers consumers' queries, not on the dispatcher: query.cpp.
  // NUL-separated, for QueryKind::kUris.
  Result<std::string> uris_of(const Job& job, const delivery::QueryRequest& request) const
      SPDLD_EXCLUDES(mutex_);
  void answer_query(std::uint64_t id, const delivery::QueryRequest& request) SPDLD_EXCLUDES(mutex_);

  bool visible(const job::Caller& caller, const job::JobKey& key) const;
  bool visible(const job::Caller& caller, const Job& job) const { return visible(caller, job.key); }
  // Whose jobs the caller sees; none: everybody's.
  std::optional<uid_t> owner_seen_by(const job::Caller& caller) const;
  SessionPtr find(const delivery::Connection& connection) const { return find(connection.id()); }
  SessionPtr find(std::uint64_t id) const SPDLD_EXCLUDES(mutex_);
  std::shared_ptr<Consumer> consumer_of(const delivery::Connection& connection) const
      SPDLD_EXCLUDES(routes_mutex_);
  void leave(const SessionPtr& session, bool done = false) SPDLD_REQUIRES(mutex_);
  // Nobody is attached. A declared job, and one that is about to change, stays.
  void end_job(const JobPtr& job) SPDLD_REQUIRES(mutex_);
  // It is no job any more. What it has begun comes to its end.
  void drop_job(const JobPtr& job) SPDLD_REQUIRES(mutex_);
  // A job that a rank has made, and that nobody has attached to, must not stay.
  void drop_if_unused(const JobPtr& job) SPDLD_REQUIRES(mutex_);
  void limits_changed(const Job& job);
  std::vector<job::StageView> stages_of(const Job& job) const;
  Totals totals_so_far() const SPDLD_REQUIRES(mutex_);  // without rates
  void take_rates() SPDLD_REQUIRES(mutex_);
  // Declared ones that cannot go on, too.
  std::size_t jobs_of_user(uid_t uid) const SPDLD_REQUIRES(mutex_);
  // Whether the user may have another one.
  Status check_room_for_job(uid_t uid) const SPDLD_REQUIRES(mutex_);

  const SessionsDeps deps_;
  pipeline::Trials trials_;
  Replacing replacing_;
  const std::chrono::nanoseconds started_;
  stream::Streams streams_;
  std::atomic<stream::JobTag> next_tag_{1};
  Mutex swapping_;  // taken before records_
  Mutex records_;   // taken before mutex_
  mutable Mutex mutex_;
  CondVar written_;  // a change of a job has been written, or could not be
  std::vector<std::pair<store::StoredPipeline, store::StoredRevision>> brought_
      SPDLD_GUARDED_BY(mutex_);                               // by loaders, and not on disk yet
  std::vector<SessionPtr> applies_ SPDLD_GUARDED_BY(mutex_);  // whose are not answered, each one's
  std::map<job::JobKey, JobPtr> jobs_ SPDLD_GUARDED_BY(mutex_);
  // Undeclared, read when an earlier daemon died, and not heard of since.
  std::set<job::JobKey> expected_ SPDLD_GUARDED_BY(mutex_);
  std::map<job::JobKey, std::string> broken_
      SPDLD_GUARDED_BY(mutex_);  // declared, and why they rest
  std::map<std::uint64_t, SessionPtr> sessions_ SPDLD_GUARDED_BY(mutex_);  // by connection
  Totals past_ SPDLD_GUARDED_BY(mutex_);                                   // of sessions that ended
  RateWindow<2> handed_ SPDLD_GUARDED_BY(mutex_);  // batches and rows, to all consumers
  // Of jobs that have ended and are not on disk so yet; the latest Store::kMostEnded.
  std::vector<store::StoredJob> ended_jobs_ SPDLD_GUARDED_BY(mutex_);
  std::vector<store::StoredPosition> ended_positions_ SPDLD_GUARDED_BY(mutex_);
  // Private jobs that have ended, oldest first: never on disk, so only the latest.
  std::deque<EndedPrivately> ended_privately_ SPDLD_GUARDED_BY(mutex_);
  bool suspended_ SPDLD_GUARDED_BY(mutex_) = false;
  std::atomic<bool> will_tick_ = false;  // it has been posted, and has not begun
  std::atomic<bool> will_keep_ = false;
  std::chrono::nanoseconds paced_at_ SPDLD_GUARDED_BY(mutex_){0};
  std::set<job::JobKey> unwritable_ SPDLD_GUARDED_BY(records_);  // that have been warned of
  Status keep_failed_ SPDLD_GUARDED_BY(mutex_);                  // the last time; logged once
  std::chrono::nanoseconds forgot_at_ SPDLD_GUARDED_BY(mutex_){0};
  std::chrono::nanoseconds closed_unused_at_ SPDLD_GUARDED_BY(mutex_);
  // Where releases go, by connection. A lock of its own, taken last: what is done to a job under
  // mutex_ holds up no consumer.
  mutable Mutex routes_mutex_;
  std::map<std::uint64_t, std::shared_ptr<Consumer>> routes_ SPDLD_GUARDED_BY(routes_mutex_);
  // How many queries of a connection are not answered; none: left out.
  std::map<std::uint64_t, int> queries_of_ SPDLD_GUARDED_BY(routes_mutex_);
  pipeline::ClassTexts class_texts_;
  BlockingPool slow_;      // attaches: they may wait for storage that does not answer
  BlockingPool applying_;  // what ranks want their jobs changed to
  BlockingPool queries_;
  BlockingPool keeper_;
};

}  // namespace spdld::session
