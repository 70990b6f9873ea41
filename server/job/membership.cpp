// SPDX-License-Identifier: Apache-2.0
#include "job/membership.h"

#include <algorithm>

namespace spdld::job {

const Membership::Entry* Membership::find(Member member) const {
  const auto known = entries_.find(member);
  return known != entries_.end() ? &known->second : nullptr;
}

std::optional<Member> Membership::expected() const {
  const auto expected = std::find_if(entries_.begin(), entries_.end(), [](const auto& known) {
    return known.second.presence == Presence::kExpected;
  });
  if (expected == entries_.end()) return std::nullopt;
  return expected->first;
}

std::optional<Member> Membership::returning(std::uint32_t num_shards) const {
  const auto returning = std::find_if(entries_.begin(), entries_.end(), [&](const auto& known) {
    return known.second.returns && known.first.shard < num_shards;
  });
  if (returning == entries_.end()) return std::nullopt;
  return returning->first;
}

bool Membership::anyone_left() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& known) { return known.second.has_left(); });
}

bool Membership::all_done() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const auto& known) {
    return !known.second.has_left() || known.second.presence == Presence::kDone;
  });
}

bool Membership::has_read(std::uint32_t shard) const {
  return std::any_of(entries_.begin(), entries_.end(), [shard](const auto& known) {
    return known.first.shard == shard && known.second.has_left();
  });
}

std::optional<StepAt> Membership::released(std::optional<std::uint32_t> shard) const {
  std::optional<StepAt> least;
  for (const auto& [member, entry] : entries_) {
    if (shard && member.shard != *shard) continue;
    const StepAt at = entry.progress.released;
    least = least ? std::min(*least, at) : at;
  }
  return least;
}

bool Membership::stopped_at(std::uint32_t shard, StepAt at) const {
  return std::all_of(entries_.begin(), entries_.end(), [&](const auto& known) {
    const Progress& progress = known.second.progress;
    const bool done = known.second.presence == Presence::kDone;
    return known.first.shard != shard ||
           (progress.next >= at && (done ? progress.next : progress.released) <= at);
  });
}

std::optional<StepAt> Membership::furthest() const {
  std::optional<StepAt> furthest;
  for (const auto& [member, entry] : entries_)
    furthest = furthest ? std::max(*furthest, entry.frontier) : entry.frontier;
  return furthest;
}

void Membership::begin(Member member, StepAt at, bool by_cursor) {
  Entry& entry = entries_[member];
  const bool instead = by_cursor && (entry.presence == Presence::kExpected || entry.returns);
  entry.presence = Presence::kHere;
  entry.is_current = true;
  entry.returns = false;
  entry.progress.next = entry.progress.released = at;
  entry.frontier = instead ? at : std::max(entry.frontier, at);
  entry.sent = {};
  entry.paced_batches = entry.ahead = 0;
}

void Membership::reach(Member member, const Progress& progress, const Sent& sent,
                       std::uint64_t ahead) {
  Entry& entry = entries_[member];
  entry.progress = progress;
  if (sent.turn == entry.sent.turn) {
    entry.frontier = std::max(entry.frontier, progress.next);
  } else {
    entry.frontier = progress.next;
    entry.reserved.reset();
  }
  entry.sent = sent;
  entry.ahead = ahead;
}

void Membership::leave(Member member, bool done) {
  entries_[member].presence = done ? Presence::kDone : Presence::kAway;
}

void Membership::limit_moves(std::uint32_t moves) {
  for (auto& [member, entry] : entries_) {
    if (entry.has_left()) entry.progress.moves = std::min(entry.progress.moves, moves);
  }
}

void Membership::raise(StepAt at) {
  for (auto& [member, entry] : entries_) entry.frontier = std::max(entry.frontier, at);
}

void Membership::go_to(StepAt to, std::uint64_t position) {
  stop_expecting();
  for (auto& [member, entry] : entries_) {
    entry.frontier = to;
    if (entry.presence == Presence::kHere) continue;
    entry.progress.next = entry.progress.released = to;
    entry.progress.released_position = position;
  }
}

void Membership::start_again(std::uint32_t num_shards, StepAt at, std::uint64_t position) {
  std::erase_if(entries_, [&](const auto& known) { return known.first.shard >= num_shards; });
  for (auto& [member, entry] : entries_) {
    entry.returns = true;
    entry.is_current = false;
    entry.progress.next = entry.progress.released = at;
    entry.progress.released_position = position;
  }
}

void Membership::begin_again(std::uint32_t num_shards) {
  std::erase_if(entries_, [&](const auto& known) { return known.first.shard < num_shards; });
}

bool Membership::stop_expecting() {
  bool any = false;
  for (auto& [member, entry] : entries_) {
    if (entry.presence != Presence::kExpected) continue;
    entry.presence = Presence::kAway;
    entry.returns = true;
    any = true;
  }
  return any;
}

std::vector<MemberRecord> Membership::record(const Further& further) const {
  std::vector<MemberRecord> record;
  for (const auto& [member, entry] : entries_) {
    const bool is_here = entry.presence == Presence::kHere;
    record.push_back({.member = member,
                      .presence = entry.presence,
                      .next = entry.progress.next,
                      .released = entry.progress.released,
                      .reserved = is_here ? further(entry.frontier, std::max(lead_, entry.ahead))
                                          : entry.frontier});
  }
  return record;
}

void Membership::kept(const std::vector<MemberRecord>& record) {
  for (const MemberRecord& of : record) {
    if (const auto known = entries_.find(of.member); known != entries_.end())
      known->second.reserved = of.reserved;
  }
}

bool Membership::outruns_record(const Further& further, bool paces) {
  if (paces) {
    std::uint64_t pace = 0;
    for (auto& [member, entry] : entries_) {
      pace = std::max(pace, entry.sent.batches - entry.paced_batches);
      entry.paced_batches = entry.sent.batches;
    }
    // A job that slows down may be fast again soon.
    lead_ = std::clamp(std::max(kLeadSeconds * pace, lead_ / 2), kLeastLead, kMostLead);
  }
  bool unknown = false;
  bool outruns = false;
  for (const auto& [member, entry] : entries_) {
    if (entry.presence != Presence::kHere) continue;
    unknown = unknown || !entry.reserved;
    outruns = outruns || (entry.reserved && *entry.reserved <= further(entry.frontier, lead_ / 2));
  }
  // The lead was to last for seconds, and did not last for one.
  if (outruns && !paces) lead_ = std::min(2 * lead_, kMostLead);
  return unknown || outruns;
}

void Membership::restore(const std::vector<MemberRecord>& record) {
  entries_.clear();
  for (const MemberRecord& of : record) {
    Entry& entry = entries_[of.member];
    entry.presence = of.presence == Presence::kHere ? Presence::kExpected : of.presence;
    entry.progress = {.next = of.next, .released = of.released};
    entry.frontier = of.reserved;
    entry.is_current = false;
    entry.reserved = of.reserved;
  }
}

}  // namespace spdld::job
