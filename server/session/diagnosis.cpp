// SPDX-License-Identifier: Apache-2.0
#include "session/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text/shell_word.h"
#include "op/op_time.h"

namespace spdld::session {
namespace {

using stream::Shortage;

// A rank that waits less is not kept waiting.
constexpr double kWaits = 0.03;
// Of the rows, so many fail: that is told, also where no rank waits.
constexpr double kFails = 0.02;
// A read that has lasted so long, and many times as long as others do, has no answer soon.
constexpr double kHungS = 3;
constexpr double kHungTimes = 4;
// Storage whose reads take longer is slow: a disk's seek takes as long.
constexpr double kSlowS = 0.004;
// The trainer's thread has no core for such a part of its time, while workers take as many cores.
constexpr double kCrowded = 0.1;
constexpr double kCrowds = 0.3;
// Functions of `map=` that take such a part of a rank's time are told of.
constexpr double kMaps = 1.0 / 3;
// So few rows take so much of the time, each more than ten times as long as most.
constexpr double kSlowRows = 0.1;
constexpr double kSlowRowsTake = 0.5;
// A bound is reached where that part of it is in use.
constexpr double kReached = 0.85;
constexpr std::uint32_t kDefaultReads = 16;  // fetch.concurrency
// So many times as many reads are advised, and no more than this.
constexpr std::uint32_t kMoreReads = 4;
constexpr std::uint32_t kMostReads = 4096;
constexpr std::uint32_t kMostIoThreads = 1024;
constexpr std::uint32_t kDefaultIoThreads = 256;  // executor.io_threads
constexpr std::uint32_t kMostPrefetch = 64;       // that a loader takes
constexpr double kMostBrought = 4;                // no more is promised
constexpr double kLeast = 1e-9;                   // a divisor

double waited(const SessionView& rank) { return rank.lately ? rank.lately->waited_share : 0; }

Evidence share(std::string name, double value) { return {std::move(name), value, "share"}; }
Evidence seconds(std::string name, double value) { return {std::move(name), value, "s"}; }
Evidence count(std::string name, double value) { return {std::move(name), value, ""}; }

std::string percent(double of) { return fmt::format("{:.0f} %", of * 100); }
std::string fine_percent(double of) { return fmt::format("{:.2g} %", of * 100); }
std::string time(double seconds) {
  return seconds < 0.9995 ? fmt::format("{:.3g} ms", seconds * 1e3)
                          : fmt::format("{:.1f} s", seconds);
}
std::string up_to(double times) {
  times = std::min(times, kMostBrought);
  return times < 1.05 ? std::string() : fmt::format("up to {:.1f} x the rows a second", times);
}

// A task of the stage, as most of them; lately where that is known.
double task_s(const job::StageView& stage) {
  return 1e-6 * static_cast<double>(stage.p50_lately_us.value_or(stage.p50_us));
}

class Rules {
 public:
  Rules(const DiagnosisFacts& facts, const DaemonView& daemon)
      : facts_(facts),
        daemon_(daemon),
        workers_(daemon.workers_lately.value_or(WorkersView())),
        threads_(std::max(daemon.cpu_threads, 1u)),
        job_(shell_word(facts.job.job) + " --pipeline " + shell_word(facts.job.pipeline)) {}

  DiagnosisView apply() {
    view_.job = facts_.job.job;
    view_.pipeline = facts_.job.pipeline;
    view_.ranks = static_cast<std::uint32_t>(facts_.ranks.size());
    for (const SessionView& rank : facts_.ranks) {
      if (rank.lately) view_.waited_share = std::max(view_.waited_share.value_or(0), waited(rank));
    }
    if (!view_.waited_share) return std::move(view_);
    const std::optional<Finding> failing = failing_data();
    if (*view_.waited_share < kWaits) {
      if (failing) view_.findings.push_back(*failing);
      crowded_trainer();
      mapping_trainer();
      return std::move(view_);
    }
    view_.faster = 1 / std::max(1 - *view_.waited_share, 0.01);
    for (const auto& [lack, part] : lacks()) {
      if (auto finding = explain(lack)) add(*std::move(finding), part);
    }
    // A cause that can be mended, and for which ranks wait longer, goes before it.
    if (failing) {
      const bool is_second = !view_.findings.empty() && view_.findings[0].cause != "cpu" &&
                             failing_share() < *view_.waited_share;
      view_.findings.insert(view_.findings.begin() + (is_second ? 1 : 0), *failing);
    }
    return std::move(view_);
  }

 private:
  // What the ranks that wait lack, and how much of that it is; the greatest part first. Rows that
  // are being made are want of workers, too.
  std::vector<std::pair<Shortage, double>> lacks() const {
    std::array<double, stream::kShortages> parts{};
    double all = 0;
    for (const SessionView& rank : facts_.ranks) {
      if (waited(rank) < *view_.waited_share / 2) continue;
      for (std::size_t why = 0; why < stream::kShortages; ++why) {
        const bool is_made = static_cast<Shortage>(why) == Shortage::kMaking;
        const double lacked = rank.lately->shortages.lacked_s[why];
        parts[is_made ? static_cast<std::size_t>(Shortage::kWorker) : why] += lacked;
        all += lacked;
      }
    }
    std::vector<std::pair<Shortage, double>> lacks;
    for (std::size_t why = 0; why < stream::kShortages; ++why) {
      if (parts[why] > 0.1 * all) lacks.emplace_back(static_cast<Shortage>(why), parts[why] / all);
    }
    std::sort(lacks.begin(), lacks.end(),
              [](const auto& one, const auto& two) { return one.second > two.second; });
    return lacks;
  }

  void add(Finding finding, double part) {
    finding.evidence.insert(finding.evidence.begin(), share("part_of_wait", part));
    view_.findings.push_back(std::move(finding));
  }

  std::optional<Finding> explain(Shortage lack) const {
    switch (lack) {
      case Shortage::kBytes: return bytes();
      case Shortage::kWorker:
      case Shortage::kMaking: return workers();
      case Shortage::kMemory:
        return Finding{.cause = "decode_memory",
                       .says =
                           "rows wait for room to decode: raise executor.decode_memory, or "
                           "limit the size of what is decoded (max_pixels)"};
      case Shortage::kCalls:
        if (!facts_.lacks_runners.empty())
          return Finding{.cause = "runners", .says = facts_.lacks_runners};
        return Finding{.cause = "runners",
                       .says =
                           "rows wait for your own function: raise 'concurrency' of its 'python' "
                           "stage, or move what is dear in it to built-in stages"};
      case Shortage::kSlot: return prefetch();
      case Shortage::kReplica: return replica();
      case Shortage::kJob:
        return Finding{.cause = "other_reader",
                       .says =
                           "a slower job that shares the stream has not read what is in its "
                           "slots: raise prefetch in its loader; a job that is held up for "
                           "long gets slots of its own"};
      case Shortage::kCopy:
        return Finding{.cause = "gpu_copy",
                       .says =
                           "batches lie ready in main memory and are on the way to the GPU: "
                           "raise prefetch in the loader, or deliver smaller types (uint8 "
                           "instead of float32)"};
      case Shortage::kEpoch:
        return Finding{.cause = "epoch",
                       .says = "the next epoch is not open yet",
                       .command = "spdlctl job advance " + job_};
      case Shortage::kChange:
        return Finding{.cause = "change",
                       .says = "the job is being changed",
                       .command = "spdlctl get jobs " + job_};
      case Shortage::kDisk:
        return Finding{.cause = "state_dir",
                       .says =
                           "where the job is must be on disk first, and the disk of state_dir "
                           "takes its time: put state_dir on a faster one"};
    }
    return std::nullopt;
  }

  double failing_share() const {
    const double rows = facts_.process.rows_per_s.value_or(0);
    return rows > 0 ? facts_.process.failures_per_s.value_or(0) / rows : 0;
  }

  std::optional<Finding> failing_data() const {
    const double failing = failing_share();
    if (failing < kFails) return std::nullopt;
    return Finding{
        .cause = "failing_data",
        .says = percent(failing) +
                " of the rows cannot be made, and others take their place, which training sees "
                "more often. Mend the items, or leave them out (exclude, select)",
        .evidence = {share("process.failed", failing)},
        .command = "spdlctl get failures " + job_};
  }

  // Workers that make batches ahead have the core that the trainer's own thread needs.
  void crowded_trainer() {
    double most = 0;
    for (const SessionView& rank : facts_.ranks)
      most = std::max(most, rank.lately ? rank.lately->core_waited_share.value_or(0) : 0);
    const double making = workers_.rows_s + workers_.batches_s;
    if (most < kCrowded || making < kCrowds) return;
    view_.findings.push_back(
        {.cause = "trainer_core",
         .says = fmt::format("the thread that trains is ready to run and has no core for {} of its "
                             "time, and the daemon's workers take {:.1f} cores: have them leave it "
                             "one",
                             percent(most), making),
         .evidence = {share("trainer.wait_for_core", most), count("workers.at_work", making)},
         .command = threads_ > 1 ? fmt::format("spdlctl tune daemon executor.cpu_threads={:.0f}",
                                               threads_ - 1)
                                 : "",
         .brings = up_to(1 / (1 - std::min(most, 0.9)))});
  }

  // Of the rank that has the most of it. Its threads may be in them at once.
  void mapping_trainer() {
    const auto share_of = [](const SessionView& rank) {
      return rank.lately ? rank.lately->map_share : 0;
    };
    const SessionView& rank = *std::ranges::max_element(facts_.ranks, {}, share_of);
    const double maps = share_of(rank);
    if (maps < kMaps) return;
    view_.findings.push_back(
        {.cause = "map",
         .says = fmt::format("map= of shard {1}'s rank takes {0} of its time, in all its threads, "
                             "and in the process that trains: have the pipeline do what its stages "
                             "can, or raise map_threads of the Loader",
                             percent(maps), rank.shard),
         .evidence = {share("trainer.map", maps)}});
  }

  // The storage that its reads wait for, if there is no other that any read waits for.
  std::string storage() const {
    const StorageView* only = nullptr;
    for (const StorageView& of : daemon_.storage) {
      if (of.reading == 0) continue;
      if (only != nullptr) return "its storage";
      only = &of;
    }
    return only == nullptr || only->mount.empty() ? "its storage" : "the storage at " + only->mount;
  }

  Finding bytes() const {
    const std::uint32_t most = std::max(facts_.fetch.concurrency, 1u);
    const double waiting = facts_.fetch.waiting.value_or(0);
    const double served = facts_.fetch.served.value_or(0);
    const double in_flight = std::max<double>(facts_.fetch.in_flight, served + waiting);
    const double read_s = task_s(facts_.fetch);
    std::vector<Evidence> evidence{count("fetch.in_flight", in_flight),
                                   count("fetch.concurrency", most),
                                   count("fetch.waiting", waiting), seconds("fetch.p50", read_s)};
    if (facts_.oldest_read_s >= kHungS && facts_.oldest_read_s > kHungTimes * read_s) {
      evidence.push_back(seconds("oldest_read", facts_.oldest_read_s));
      return {.cause = "hung_storage",
              .says = fmt::format("{} does not answer: item {} is being read for {}. See to it; "
                                  "reads go on by themselves once it answers",
                                  storage(), facts_.oldest_read, time(facts_.oldest_read_s)),
              .evidence = std::move(evidence)};
    }
    const bool slow = read_s >= kSlowS;
    if (waiting > 0.25 * in_flight) {
      const bool is_low = daemon_.io_threads < kDefaultIoThreads;
      return {
          .cause = slow && !is_low ? "storage_latency" : "io_threads",
          .says = fmt::format("{} takes {} for a read, and of {:.0f} that the job has asked for "
                              "{:.0f} wait for an I/O thread: have an admin raise "
                              "executor.io_threads, now {}",
                              storage(), time(read_s), in_flight, waiting, daemon_.io_threads),
          .evidence = std::move(evidence),
          .command = raise("daemon", "executor.io_threads", daemon_.io_threads,
                           std::clamp(2 * daemon_.io_threads, kDefaultIoThreads, kMostIoThreads)),
          .brings = up_to(view_.faster)};
    }
    if (in_flight >= kReached * most)
      return {.cause = slow && most >= kDefaultReads ? "storage_latency" : "fetch_concurrency",
              .says = fmt::format("{} takes {} for a read, and no more than {} are under way at "
                                  "once, as 'concurrency' of fetch allows: have more",
                                  storage(), time(read_s), most),
              .evidence = std::move(evidence),
              .command =
                  raise(job_, "fetch.concurrency", most, std::min(kMoreReads * most, kMostReads)),
              .brings = up_to(std::min<double>(view_.faster, kMoreReads))};
    // Few rows are asked for, as few batches are.
    return prefetch(evidence);
  }

  std::optional<Finding> workers() const {
    const double making = workers_.rows_s + workers_.batches_s;
    const double own = facts_.process.served.value_or(0);
    const double others = facts_.others_served;
    const double waits_for_core = workers_.core_s.value_or(0);
    const double row_s = task_s(facts_.process);
    const std::uint32_t cpus = facts_.job.limits.cpus.value_or(0);
    std::vector<Evidence> evidence{count("workers", threads_), count("workers.at_work", making),
                                   count("process.served", own)};
    const auto found = [&](std::string cause, std::string says, Evidence figure,
                           std::string command = {}, std::string brings = {}) {
      evidence.push_back(std::move(figure));
      return Finding{.cause = std::move(cause),
                     .says = std::move(says),
                     .evidence = std::move(evidence),
                     .command = std::move(command),
                     .brings = std::move(brings)};
    };
    // As many times as fast with all workers, or with those that others have.
    const auto with = [&](double workers) {
      return up_to(std::min(view_.faster, workers / std::max(own, kLeast)));
    };
    if (workers_.throttled_s.value_or(0) > 0.05 * threads_)
      return found("cpu_quota",
                   "the daemon's cgroup has used up its CPU quota again and again: raise the quota "
                   "(cpu.max; CPUQuota= of its unit; the container's CPU limit)",
                   seconds("workers.throttled", *workers_.throttled_s));
    if (cpus > 0 && own >= kReached * cpus && workers_.job_bound_s > 0.1 * threads_)
      return found("job_cpus",
                   fmt::format("the job may have {} workers, and others are idle", cpus),
                   seconds("workers.job_bound", workers_.job_bound_s),
                   "spdlctl tune " + job_ + " cpus=all", with(threads_));
    if (own >= kReached * facts_.process.concurrency && workers_.stage_bound_s > 0.1 * threads_)
      return found(
          "stage_concurrency",
          fmt::format("stage '{}' may have {} workers, as its 'concurrency' says, and others are "
                      "idle",
                      facts_.process.stage, facts_.process.concurrency),
          seconds("workers.stage_bound", workers_.stage_bound_s),
          fmt::format("spdlctl tune {} process.concurrency={:.0f}", job_, threads_),
          with(threads_));
    if (workers_.slot_s + workers_.yield_s > 0.15 * threads_) return prefetch(evidence);
    if (others > 0.25 * (own + others))
      return found("other_jobs",
                   fmt::format("of the workers that make rows, other jobs have {}: give this one "
                               "more weight than its {:.3g}",
                               percent(others / (own + others)), facts_.job.limits.weight),
                   share("workers.others", others / (own + others)),
                   fmt::format("spdlctl tune {} weight={:.3g}", job_, 4 * facts_.job.limits.weight),
                   with(own + others));
    // Idle workers are no want of cores.
    if (making < kReached * threads_) return std::nullopt;
    if (waits_for_core > 0.25 * making)
      return found(
          "contended_cores",
          fmt::format("workers that have work wait for a core for {} of their time: other "
                      "programs, or the trainer, have the cores. End what need not run "
                      "there, or give the daemon cores of its own (executor.cpus)",
                      percent(waits_for_core / making)),
          share("workers.wait_for_core", waits_for_core / making), {},
          up_to(std::min(view_.faster, making / std::max(making - waits_for_core, kLeast))));
    if (facts_.slow_time >= kSlowRowsTake && facts_.slow_rows <= kSlowRows)
      return found("slow_items",
                   fmt::format("{} of the rows take {} of the time that making rows takes: each of "
                               "them more than ten times the median. The slowest of late is "
                               "{}, which took {} in '{}'. Make such items smaller, or leave "
                               "them out (exclude, select, decode_image.max_pixels)",
                               fine_percent(facts_.slow_rows), percent(facts_.slow_time),
                               facts_.slowest, time(facts_.slowest_s), facts_.process.stage),
                   share("process.slow", facts_.slow_time));
    return found(
        "cpu",
        fmt::format("all {} workers make rows of this job, {} each in '{}'{}: have the cache "
                    "keep what is decoded, make the stage cheaper, or give the daemon more "
                    "cores",
                    threads_, time(row_s), facts_.process.stage, dearest_op()),
        seconds("process.p50", row_s));
  }

  // Empty: there is one alone, or none was timed.
  std::string dearest_op() const {
    const std::vector<OpTime>& ops = facts_.process.ops;
    if (ops.size() < 2) return "";
    double all_s = 0;
    for (const OpTime& of : ops) all_s += of.spent_s;
    const auto dearest = std::ranges::max_element(ops, {}, &OpTime::spent_s);
    return fmt::format(", of which '{}' of field '{}' takes {}", dearest->ops, dearest->field,
                       percent(dearest->spent_s / all_s));
  }

  // Empty: it is as high already.
  static std::string raise(const std::string& of, std::string_view key, std::uint32_t now,
                           std::uint32_t to) {
    return to > now ? fmt::format("spdlctl tune {} {}={}", of, key, to) : "";
  }

  Finding prefetch(const std::vector<Evidence>& more_evidence = {}) const {
    std::uint32_t least = kMostPrefetch;
    for (const SessionView& rank : facts_.ranks) least = std::min(least, rank.credits);
    std::uint32_t most = 0;
    for (const SessionView& rank : facts_.ranks) most = std::max(most, rank.credits);
    const std::uint32_t more = std::min(std::max(4 * std::max(least, 1u), most), kMostPrefetch);
    std::vector<Evidence> evidence{count("prefetch", least),
                                   seconds("workers.slot", workers_.slot_s + workers_.yield_s)};
    evidence.insert(evidence.end(), more_evidence.begin(), more_evidence.end());
    return {
        .cause = "prefetch",
        .says = fmt::format("ranks wait at times, and at others the workers do, as no rank may "
                            "have more than {} batches ahead{}",
                            least, more > least ? "" : ", which is the most: take larger batches"),
        .evidence = std::move(evidence),
        .command = raise(job_, "prefetch", least, more),
        .brings = up_to(view_.faster)};
  }

  // Of the shard of the rank that lacks its replicas most.
  Finding replica() const {
    const auto lacked = [](const SessionView& rank) {
      return rank.lately ? rank.lately->shortages.of(Shortage::kReplica) : 0;
    };
    const SessionView& waits = *std::max_element(
        facts_.ranks.begin(), facts_.ranks.end(),
        [&](const SessionView& one, const SessionView& two) { return lacked(one) < lacked(two); });
    std::uint32_t here = 0;
    const SessionView* last = nullptr;
    for (const SessionView& rank : facts_.ranks) {
      if (rank.shard != waits.shard) continue;
      ++here;
      if (last == nullptr || std::pair(rank.epoch, rank.step) < std::pair(last->epoch, last->step))
        last = &rank;
    }
    Finding finding{.cause = "slow_replica", .says = {}, .evidence = {count("shard", waits.shard)}};
    if (here < facts_.job.replicas) {
      finding.says = fmt::format(
          "replicas of a shard share their batches, and of shard {} {} of {} "
          "are attached: start the others, or see why they are gone",
          waits.shard, here, facts_.job.replicas);
      return finding;
    }
    finding.says = fmt::format(
        "replicas of a shard share their batches, and replica {} of shard {} "
        "(pid {}) is the last to read them: see why it is slow",
        last->replica, last->shard, last->pid);
    finding.evidence.push_back(count("replica", last->replica));
    return finding;
  }

  const DiagnosisFacts& facts_;
  const DaemonView& daemon_;
  const WorkersView workers_;
  const double threads_;
  const std::string job_;  // with its pipeline, as a command names it
  DiagnosisView view_;
};

}  // namespace

DiagnosisView diagnose(const DiagnosisFacts& facts, const DaemonView& daemon) {
  return Rules(facts, daemon).apply();
}

}  // namespace spdld::session
