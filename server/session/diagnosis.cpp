// SPDX-License-Identifier: Apache-2.0
#include "session/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace spdld::session {
namespace {

using stream::Shortage;

// A rank that waits less is not kept waiting.
constexpr double kWaits = 0.03;
// Of the rows, so many fail: that is told first.
constexpr double kFails = 0.02;
// A read that has lasted so long has no answer soon.
constexpr double kHungS = 3;
// A device that answers later is slow: a disk's seek takes as long.
constexpr double kSlowS = 0.004;
constexpr std::uint32_t kDefaultReads = 16;       // fetch.concurrency
constexpr std::uint32_t kDefaultIoThreads = 256;  // executor.io_threads
constexpr double kLeast = 1e-9;                   // a divisor

// What ranks lack, in groups that have one remedy.
enum class Lack { kBytes, kWorkers, kMemory, kSlot, kReplica, kJob, kCopy, kEpoch, kChange, kDisk };
constexpr std::size_t kLacks = 10;

Lack lack_of(Shortage why) {
  switch (why) {
    case Shortage::kBytes: return Lack::kBytes;
    case Shortage::kWorker:
    case Shortage::kMaking: return Lack::kWorkers;
    case Shortage::kMemory: return Lack::kMemory;
    case Shortage::kSlot: return Lack::kSlot;
    case Shortage::kReplica: return Lack::kReplica;
    case Shortage::kJob: return Lack::kJob;
    case Shortage::kCopy: return Lack::kCopy;
    case Shortage::kEpoch: return Lack::kEpoch;
    case Shortage::kChange: return Lack::kChange;
    case Shortage::kDisk: return Lack::kDisk;
  }
  return Lack::kWorkers;
}

double waited(const SessionView& rank) { return rank.lately ? rank.lately->waited_share : 0; }

Evidence share(std::string name, double value) { return {std::move(name), value, "share"}; }
Evidence seconds(std::string name, double value) { return {std::move(name), value, "s"}; }
Evidence count(std::string name, double value) { return {std::move(name), value, ""}; }

std::string percent(double of) { return fmt::format("{:.0f} %", of * 100); }
std::string time(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}
std::string up_to(double times) {
  return times < 1.05 ? std::string() : fmt::format("up to {:.1f} x the rows a second", times);
}

class Rules {
 public:
  explicit Rules(const DiagnosisFacts& facts)
      : facts_(facts),
        workers_(facts.daemon.workers_lately.value_or(WorkersView())),
        threads_(std::max(facts.daemon.cpu_threads, 1u)) {}

  DiagnosisView apply() {
    view_.job = facts_.job.job;
    view_.pipeline = facts_.job.pipeline;
    for (const SessionView& rank : facts_.ranks) {
      if (rank.lately) view_.waited_share = std::max(view_.waited_share.value_or(0), waited(rank));
    }
    if (!view_.waited_share) return std::move(view_);
    failing_data();
    if (*view_.waited_share < kWaits) return std::move(view_);
    view_.faster = 1 / std::max(1 - *view_.waited_share, 0.01);
    for (const auto& [lack, part] : lacks()) explain(lack, part);
    return std::move(view_);
  }

 private:
  // What the ranks that wait lack, and how much of that it is; the greatest part first.
  std::vector<std::pair<Lack, double>> lacks() const {
    std::array<double, kLacks> parts{};
    double all = 0;
    for (const SessionView& rank : facts_.ranks) {
      if (waited(rank) < *view_.waited_share / 2) continue;
      for (std::size_t why = 0; why < stream::kShortages; ++why) {
        const double lacked = rank.lately->shortages.lacked_s[why];
        parts[static_cast<std::size_t>(lack_of(static_cast<Shortage>(why)))] += lacked;
        all += lacked;
      }
    }
    std::vector<std::pair<Lack, double>> lacks;
    for (std::size_t lack = 0; lack < kLacks; ++lack) {
      if (parts[lack] > 0.1 * all) lacks.emplace_back(static_cast<Lack>(lack), parts[lack] / all);
    }
    std::sort(lacks.begin(), lacks.end(),
              [](const auto& one, const auto& two) { return one.second > two.second; });
    return lacks;
  }

  void add(Finding finding, double part) {
    finding.evidence.insert(finding.evidence.begin(), share("lacked", part));
    view_.findings.push_back(std::move(finding));
  }

  void explain(Lack lack, double part) {
    switch (lack) {
      case Lack::kBytes: return add(bytes(), part);
      case Lack::kWorkers: return add(workers(), part);
      case Lack::kMemory:
        return add({.cause = "decode_memory",
                    .says = "rows wait for room to decode: raise executor.decode_memory, or limit "
                            "the size of what is decoded (max_pixels)"},
                   part);
      case Lack::kSlot: return add(prefetch(), part);
      case Lack::kReplica: return add(replica(), part);
      case Lack::kJob:
        return add({.cause = "other_reader",
                    .says = "a slower job that shares the stream has not read what is in its "
                            "slots: raise prefetch in its loader; a job that is held up for long "
                            "gets slots of its own"},
                   part);
      case Lack::kCopy:
        return add({.cause = "gpu_copy",
                    .says = "batches lie ready in main memory and are on the way to the GPU: raise "
                            "prefetch in the loader, or deliver smaller types (uint8 instead of "
                            "float32)"},
                   part);
      case Lack::kEpoch:
        return add({.cause = "epoch",
                    .says = "the next epoch is not open yet",
                    .command = "spdlctl job advance " + view_.job},
                   part);
      case Lack::kChange:
        return add({.cause = "change",
                    .says = "the job is being changed: wait, or see 'spdlctl "
                            "get jobs " +
                            view_.job + "'"},
                   part);
      case Lack::kDisk:
        return add({.cause = "state_dir",
                    .says = "where the job is must be on disk first, and the disk of state_dir "
                            "takes its time: put state_dir on a faster one"},
                   part);
    }
  }

  void failing_data() {
    const double rows = facts_.process.rows_per_s.value_or(0);
    const double failures = facts_.process.failures_per_s.value_or(0);
    if (rows <= 0 || failures / rows < kFails) return;
    view_.findings.push_back(
        {.cause = "failing_data",
         .says = percent(failures / rows) +
                 " of the rows cannot be made, and others take their place: training sees those "
                 "more often. Mend the items, or leave them out (exclude, select)",
         .evidence = {share("process.failed", failures / rows)},
         .command = "spdlctl get failures " + view_.job});
  }

  // The device that most reads wait for.
  const StorageView* device() const {
    const std::vector<StorageView>& storage = facts_.daemon.storage;
    const auto most = std::max_element(
        storage.begin(), storage.end(), [](const StorageView& one, const StorageView& two) {
          return one.reading + one.waiting < two.reading + two.waiting;
        });
    return most == storage.end() || most->reading == 0 ? nullptr : &*most;
  }

  Finding bytes() const {
    const StorageView* const device = this->device();
    const std::uint32_t reads = facts_.fetch.concurrency;
    const double in_flight =
        std::max<double>(facts_.fetch.in_flight, facts_.fetch.served.value_or(0));
    std::vector<Evidence> evidence{count("fetch.in_flight", in_flight),
                                   count("fetch.concurrency", reads)};
    if (device == nullptr)
      return {.cause = "storage",
              .says =
                  "rows wait for their bytes, and no read is under way just now: cannot tell "
                  "more",
              .evidence = std::move(evidence)};
    const std::string name = device->device.empty()  ? "the storage of its data"
                             : device->mount.empty() ? "device " + device->device
                                                     : "the storage at " + device->mount;
    evidence.push_back(count("storage.reading", device->reading));
    evidence.push_back(count("storage.most", device->most));
    evidence.push_back(count("storage.waiting", static_cast<double>(device->waiting)));
    evidence.push_back(seconds("storage.served", device->served_s));
    if (device->stuck == device->reading && device->longest_s >= kHungS)
      return {.cause = "hung_storage",
              .says = fmt::format("{} does not answer: {} of its reads are under way, the "
                                  "oldest for {}. See to the mount; reads go on by themselves once "
                                  "it answers",
                                  name, device->reading, time(device->longest_s)),
              .evidence = std::move(evidence),
              .command = "spdlctl get storage"};
    if (device->waiting > 0 && device->reading >= device->most)
      return few_reads("io_threads", facts_.daemon.io_threads < kDefaultIoThreads, device->most,
                       "executor.io_threads allows it, of " +
                           std::to_string(facts_.daemon.io_threads) +
                           " for all devices: raise that in the daemon's configuration",
                       *device, name, std::move(evidence));
    return few_reads("fetch_concurrency", reads < kDefaultReads, reads,
                     "'concurrency' of fetch allows: write a higher one into the pipeline's text, "
                     "and apply that to the job",
                     *device, name, std::move(evidence),
                     "spdlctl apply -f PIPELINE.yaml --job " + view_.job);
  }

  Finding few_reads(std::string cause, bool is_low, std::uint32_t most, const std::string& bound,
                    const StorageView& device, const std::string& name,
                    std::vector<Evidence> evidence, std::string command = {}) const {
    const bool slow = !is_low && device.served_s >= kSlowS;
    return {.cause = slow ? "storage_latency" : std::move(cause),
            .says = fmt::format("{} takes {} for a read, and no more than {} are under "
                                "way at once, as {}",
                                name, time(device.served_s), most, bound),
            .evidence = std::move(evidence),
            .command = std::move(command),
            .brings = up_to(std::min(view_.faster, 4.0))};
  }

  Finding workers() const {
    const double making = workers_.rows_s + workers_.batches_s;
    const double own = facts_.process.served.value_or(0);
    const double others = facts_.others_served;
    const double waits_for_core = workers_.core_s.value_or(0);
    const double row_s =
        1e-6 * static_cast<double>(facts_.process.p50_lately_us.value_or(facts_.process.p50_us));
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
    if (workers_.throttled_s.value_or(0) > 0.1)
      return found("cpu_quota",
                   "the daemon's cgroup has used up its CPU quota again and again: raise the quota "
                   "(cpu.max; CPUQuota= of its unit; the container's CPU limit)",
                   seconds("workers.throttled", *workers_.throttled_s));
    if (workers_.stage_bound_s > 0.1 * threads_)
      return found(
          "stage_concurrency",
          fmt::format("stage '{}' may have {} workers, and others are idle: write a higher "
                      "'concurrency' into the pipeline's text, or none, and apply that to "
                      "the job",
                      facts_.process.stage, facts_.process.concurrency),
          seconds("workers.stage_bound", workers_.stage_bound_s),
          "spdlctl apply -f PIPELINE.yaml --job " + view_.job,
          up_to(std::min(view_.faster, threads_ / std::max(own, kLeast))));
    if (workers_.job_bound_s > 0.1 * threads_)
      return found("job_cpus",
                   fmt::format("the job may have {} workers, and others are idle",
                               facts_.job.limits.cpus.value_or(0)),
                   seconds("workers.job_bound", workers_.job_bound_s),
                   "spdlctl job limit " + view_.job + " --cpus 0",
                   up_to(std::min(view_.faster, threads_ / std::max(own, kLeast))));
    if (workers_.slot_s > 0.15 * threads_) {
      Finding ahead = prefetch();
      ahead.evidence.insert(ahead.evidence.end(), evidence.begin(), evidence.end());
      return ahead;
    }
    if (others > 0.25 * (own + others))
      return found("other_jobs",
                   fmt::format("other jobs have {} of the workers' time: give this one more weight",
                               percent(others / (own + others))),
                   share("workers.others", others / (own + others)),
                   fmt::format("spdlctl job limit {} --weight {:.3g}", view_.job,
                               4 * facts_.job.limits.weight),
                   up_to(std::min(view_.faster, (own + others) / std::max(own, kLeast))));
    if (waits_for_core > 0.25 * making)
      return found(
          "contended_cores",
          fmt::format("workers are ready to run and wait for a core for {} of their time: "
                      "other programs have the cores. End those, or give the daemon cores "
                      "of its own (executor.cpus)",
                      percent(waits_for_core / std::max(making, kLeast))),
          share("workers.wait_for_core", waits_for_core / std::max(making, kLeast)), {},
          up_to(std::min(view_.faster, making / std::max(making - waits_for_core, kLeast))));
    return found(
        "cpu",
        fmt::format("all {} workers make rows of this job, {} each in '{}': have the cache "
                    "keep what is decoded, make the stage cheaper, or give the daemon more "
                    "cores",
                    threads_, time(row_s), facts_.process.stage),
        seconds("process.p50", row_s));
  }

  Finding prefetch() const {
    std::uint32_t least = 0;
    for (const SessionView& rank : facts_.ranks)
      least = least == 0 ? rank.credits : std::min(least, rank.credits);
    return {.cause = "prefetch",
            .says = fmt::format("ranks wait at times, and at others the workers do, as no rank may "
                                "have more than {} batches ahead: raise prefetch in the loader, to "
                                "{} say",
                                least, 4 * std::max(least, 1u)),
            .evidence = {count("prefetch", least), seconds("workers.slot", workers_.slot_s)},
            .command = {},
            .brings = up_to(view_.faster)};
  }

  Finding replica() const {
    const auto place = [](const SessionView& rank) { return std::pair(rank.epoch, rank.step); };
    const auto slowest = std::min_element(
        facts_.ranks.begin(), facts_.ranks.end(),
        [&](const SessionView& one, const SessionView& two) { return place(one) < place(two); });
    return {
        .cause = "slow_replica",
        .says = fmt::format("replicas of a shard share their batches, and replica {} of shard {} "
                            "(pid {}) is the last to read them: see why it is slow",
                            slowest->replica, slowest->shard, slowest->pid),
        .evidence = {count("replica", slowest->replica), count("shard", slowest->shard)}};
  }

  const DiagnosisFacts& facts_;
  const WorkersView workers_;
  const double threads_;
  DiagnosisView view_;
};

}  // namespace

DiagnosisView diagnose(const DiagnosisFacts& facts) { return Rules(facts).apply(); }

}  // namespace spdld::session
