// SPDX-License-Identifier: Apache-2.0
#include "session/frontiers.h"

#include <algorithm>

namespace spdld::session {

std::optional<job::StepAt> Frontiers::furthest() const {
  std::optional<job::StepAt> furthest;
  for (const auto& [member, entry] : entries_)
    furthest = furthest ? std::max(*furthest, entry.at) : entry.at;
  return furthest;
}

void Frontiers::begin(job::Member member, job::StepAt at, bool instead) {
  Entry& entry = entries_[member];
  entry.at = instead ? at : std::max(entry.at, at);
  entry.turn = entry.batches = entry.counted = 0;
  entry.returns = false;
}

void Frontiers::reach(job::Member member, job::StepAt next, std::uint64_t turn,
                      std::uint64_t batches) {
  Entry& entry = entries_[member];
  entry.at = turn == entry.turn ? std::max(entry.at, next) : next;
  entry.turn = turn;
  entry.batches = batches;
}

void Frontiers::raise(job::StepAt at) {
  for (auto& [member, entry] : entries_) entry.at = std::max(entry.at, at);
}

void Frontiers::go_to(job::StepAt to) {
  for (auto& [member, entry] : entries_) entry.at = to;
}

void Frontiers::start_again(std::uint32_t num_shards) {
  std::erase_if(entries_, [&](const auto& known) { return known.first.shard >= num_shards; });
  for (auto& [member, entry] : entries_) entry.returns = true;
}

bool Frontiers::returns(job::Member member) const {
  const auto known = entries_.find(member);
  return known != entries_.end() && known->second.returns;
}

std::vector<store::StoredFrontier> Frontiers::stored(const stream::Timeline& timeline,
                                                     const std::set<job::Member>& reading) const {
  std::vector<store::StoredFrontier> record;
  for (const auto& [member, entry] : entries_)
    record.push_back(
        {.member = member,
         .at = reading.contains(member) ? timeline.further(entry.at, lead_) : entry.at});
  return record;
}

void Frontiers::kept(const std::vector<store::StoredFrontier>& record) {
  for (const store::StoredFrontier& of : record) {
    if (const auto known = entries_.find(of.member); known != entries_.end())
      known->second.kept = of.at;
  }
}

void Frontiers::restore(const std::vector<store::StoredFrontier>& record) {
  entries_.clear();
  for (const store::StoredFrontier& of : record) entries_[of.member] = {.at = of.at, .kept = of.at};
}

bool Frontiers::outrun(const stream::Timeline& timeline, const std::set<job::Member>& reading,
                       bool paces) {
  if (paces) {
    std::uint64_t pace = 0;
    for (auto& [member, entry] : entries_) {
      pace = std::max(pace, entry.batches - entry.counted);
      entry.counted = entry.batches;
    }
    // A job that slows down may be fast again soon.
    lead_ = std::clamp(std::max(kLeadSeconds * pace, lead_ / 2), kLeastLead, kMostLead);
  }
  bool unknown = false;
  bool outrun = false;
  for (const auto& [member, entry] : entries_) {
    if (!reading.contains(member)) continue;
    unknown = unknown || !entry.kept;
    outrun = outrun || (entry.kept && *entry.kept <= timeline.further(entry.at, lead_ / 2));
  }
  // What was meant for seconds is used up within one.
  if (outrun && !paces) lead_ = std::min(2 * lead_, kMostLead);
  return unknown || outrun;
}

}  // namespace spdld::session
