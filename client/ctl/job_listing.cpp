// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text/counted.h"
#include "ctl/listing.h"

namespace spdld::ctl {
namespace {

using Place = std::pair<std::uint64_t, std::uint64_t>;  // epoch, step

Place place_of(const v1::StepAt& at) { return {at.epoch(), at.step()}; }

std::string show(const Place& place) { return fmt::format("{}/{}", place.first, place.second); }

// Where the shard is that has come least far; {0, 0} if none has been read. A shard that nobody has
// read from this daemon does not count: another node may feed it.
Place slowest(const v1::Job& job) {
  constexpr Place kBegin{0, 0};
  std::optional<Place> last;
  for (const v1::Shard& shard : job.shards()) {
    const Place place{shard.epoch(), shard.step()};
    if (shard.session() == 0 && place == kBegin) continue;
    last = std::min(last.value_or(place), place);
  }
  return last.value_or(kBegin);
}

// "3", or "3 -> 4 at 2/0" while a switch lies ahead of a shard.
std::string show_versions(const v1::Job& job) {
  const Place here = slowest(job);
  std::uint32_t version = job.pipeline_version();
  for (const v1::Phase& phase : job.phases()) {
    if (place_of(phase.from()) <= here) version = phase.pipeline_version();
  }
  std::string shown = std::to_string(version);
  for (const v1::Phase& phase : job.phases()) {
    if (place_of(phase.from()) <= here || phase.pipeline_version() == version) continue;
    version = phase.pipeline_version();
    shown += fmt::format(" -> {} at {}", version, show(place_of(phase.from())));
  }
  return shown;
}

std::string show_epochs(const v1::Job& job) {
  std::string shown = job.epochs() == v1::EPOCH_MODE_MANUAL
                          ? fmt::format("manual, {} open", job.open_epochs())
                          : std::string("auto");
  if (job.max_epochs() > 0) shown += fmt::format(", {} in all", job.max_epochs());
  return shown;
}

std::string show_limits(const v1::Limits& limits) {
  std::string shown = fmt::format("weight {:g}", limits.weight());
  if (limits.has_cpus()) shown += fmt::format(", {} at most", counted(limits.cpus(), "CPU worker"));
  if (limits.has_arena_bytes())
    shown += fmt::format(", arenas of {} at most", show_bytes(limits.arena_bytes()));
  return shown;
}

std::string show_saving(const v1::Job& job) {
  if (job.shared_rows() == 0 && job.cache_hits() == 0)
    return "nothing: no other job and no cache had its rows";
  const double whole = job.cpu_s() + job.saved_cpu_s();
  const double share = whole > 0 ? 100 * job.saved_cpu_s() / whole : 0;
  std::string shown = fmt::format("{} of CPU ({:.0f} %)", show_seconds(job.saved_cpu_s()), share);
  const char* before = ": ";
  if (job.shared_rows() > 0)
    shown += fmt::format("{}{} had been made by other jobs", std::exchange(before, ", "),
                         counted(job.shared_rows(), "row"));
  if (job.cache_hits() > 0)
    shown += fmt::format("{}{} made from the sample cache", before,
                         counted(job.cache_hits(), "row was", "rows were"));
  return shown;
}

void print_facts(const v1::Job& job, std::ostream& out) {
  out << fmt::format("owner      {}; {}\n", job.owner(),
                     job.declared() ? "declared" : "made by its first rank");
  out << fmt::format("epochs     {}; of {}, {}, seed {}\n", show_epochs(job),
                     counted(job.steps_per_epoch(), "step"), counted(job.items(), "item"),
                     job.seed());
  out << fmt::format(
      "batches    {} on {}{}{}\n", counted(job.batch_size(), "row"),
      job.num_shards() == 1 ? "1 shard" : fmt::format("each of {} shards", job.num_shards()),
      job.replicas() > 1 ? fmt::format(" with {} replicas", job.replicas()) : "",
      job.has_dealt_from() ? ", dealt out so from " + show(place_of(job.dealt_from())) + " on"
                           : "");
  out << fmt::format("replaced   {} after data errors, of {} that may be\n",
                     counted(job.replaced(), "item"), job.replace_budget());
  out << fmt::format("limits     {}\n", show_limits(job.limits()));
  out << fmt::format("used       {} of CPU, arenas of {}\n", show_seconds(job.cpu_s()),
                     show_bytes(job.arena_bytes()));
  out << fmt::format("saved      {}\n", show_saving(job));
  const v1::Ledger& ledger = job.ledger();
  out << fmt::format(
      "ledger     {}, position {}; {}\n", show(place_of(ledger.at())), ledger.position(),
      ledger.kept_unix_ms() == 0 ? "not on disk yet"
                                 : "on disk since " + show_time(ledger.kept_unix_ms()));
  if (!ledger.conflict().empty()) out << fmt::format("           {}\n", cell(ledger.conflict()));
  for (const v1::Seek& seek : job.seeks())
    out << fmt::format("seek       at {} to {}: not every rank is known to be there\n",
                       show(place_of(seek.from())), show(place_of(seek.to())));
}

Table phases_table(const v1::Job& job) {
  Table table({"FROM", ">VERSION", ">BATCH", "VARS"});
  for (const v1::Phase& phase : job.phases()) {
    std::vector<std::string> vars;
    for (const auto& [name, value] : phase.vars()) vars.push_back(name + "=" + value);
    std::sort(vars.begin(), vars.end());
    table.add({show(place_of(phase.from())), std::to_string(phase.pipeline_version()),
               std::to_string(phase.batch_size()), fmt::format("{}", fmt::join(vars, " "))});
  }
  return table;
}

Table shards_table(const v1::Job& job) {
  const bool replicas = job.replicas() > 1;
  std::vector<std::string> headings = {">SHARD", ">SESSION", ">PID", ">EPOCH", ">STEP"};
  if (replicas) headings.insert(headings.begin() + 1, ">REPLICA");
  Table table(headings);
  for (const v1::Shard& shard : job.shards()) {
    const bool attached = shard.session() != 0;
    std::vector<std::string> row = {std::to_string(shard.shard()),
                                    attached ? std::to_string(shard.session()) : "-",
                                    attached ? std::to_string(shard.pid()) : "-",
                                    std::to_string(shard.epoch()), std::to_string(shard.step())};
    if (replicas) row.insert(row.begin() + 1, std::to_string(shard.replica()));
    table.add(std::move(row));
  }
  return table;
}

}  // namespace

Table jobs_table(const google::protobuf::RepeatedPtrField<v1::Job>& jobs) {
  const bool owners = std::any_of(jobs.begin(), jobs.end(), [&](const v1::Job& job) {
    return job.owner() != jobs.Get(0).owner();
  });
  const bool weights = std::any_of(jobs.begin(), jobs.end(),
                                   [](const v1::Job& job) { return job.limits().weight() != 1; });
  std::vector<std::string> headings = {"JOB",     "PIPELINE", "VERSION", ">RANKS",
                                       ">AT",     ">STEPS",   ">ROWS/S", ">CPU",
                                       ">REUSED", ">SAVED",   ">LEDGER", ">REPLACED"};
  if (weights) headings.insert(headings.begin() + 7, ">WEIGHT");
  if (owners) headings.insert(headings.begin() + 2, ">OWNER");
  Table table(headings);
  for (const v1::Job& job : jobs) {
    const auto attached =
        std::count_if(job.shards().begin(), job.shards().end(),
                      [](const v1::Shard& shard) { return shard.session() != 0; });
    const std::uint64_t places =
        std::uint64_t{job.num_shards()} * std::max<std::uint32_t>(job.replicas(), 1);
    std::vector<std::string> row = {job.job(),
                                    job.pipeline(),
                                    show_versions(job),
                                    fmt::format("{}/{}", attached, places),
                                    job.shards().empty() ? "-" : show(slowest(job)),
                                    std::to_string(job.steps_per_epoch()),
                                    job.has_rows_per_s() ? show_rate(job.rows_per_s()) : "-",
                                    show_seconds(job.cpu_s()),
                                    std::to_string(job.shared_rows() + job.cache_hits()),
                                    show_seconds(job.saved_cpu_s()),
                                    show(place_of(job.ledger().at())),
                                    fmt::format("{}/{}", job.replaced(), job.replace_budget())};
    if (weights) row.insert(row.begin() + 7, fmt::format("{:g}", job.limits().weight()));
    if (owners) row.insert(row.begin() + 2, std::to_string(job.owner()));
    table.add(std::move(row));
  }
  return table;
}

Table ended_jobs_table(const google::protobuf::RepeatedPtrField<v1::Job>& jobs) {
  Table table({"JOB", "PIPELINE", ">VERSION", ">OWNER", "ENDED", ">AT", ">STEPS", ">CPU",
               ">REPLACED", "HOW"});
  for (const v1::Job& job : jobs) {
    table.add({job.job(), job.pipeline(), std::to_string(job.pipeline_version()),
               std::to_string(job.owner()), show_time(job.end().unix_ms()),
               show(place_of(job.end().at())), std::to_string(job.steps_per_epoch()),
               show_seconds(job.cpu_s()),
               fmt::format("{}/{}", job.replaced(), job.replace_budget()), job.end().how()});
  }
  return table;
}

void print_job(const v1::Job& job, std::ostream& out) {
  google::protobuf::RepeatedPtrField<v1::Job> one;
  *one.Add() = job;
  jobs_table(one).print(out);
  out << '\n';
  print_facts(job, out);
  if (job.phases_size() > 1 || (job.phases_size() == 1 && !job.phases(0).vars().empty())) {
    out << '\n';
    phases_table(job).print(out);
  }
  if (!job.shards().empty()) {
    out << '\n';
    shards_table(job).print(out);
  }
}

}  // namespace spdld::ctl
