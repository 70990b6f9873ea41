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

bool Membership::anyone_left() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& known) { return known.second.has_left(); });
}

bool Membership::all_done() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const auto& known) {
    return !known.second.has_left() || known.second.presence == Presence::kDone;
  });
}

Turn Membership::frontier() const {
  Turn frontier = 0;
  for (const auto& [member, entry] : entries_) frontier = std::max(frontier, entry.progress.sent);
  return frontier;
}

Turn Membership::released() const {
  Turn least = kNoTurn;
  for (const auto& [member, entry] : entries_) {
    if (!entry.has_left()) least = std::min(least, entry.progress.released);
  }
  return least;
}

void Membership::begin(Member member, const Progress& progress) {
  entries_[member] = {.presence = Presence::kHere, .progress = progress, .paced = progress.sent};
  reached_ = std::max(reached_, progress.sent);
}

void Membership::reach(Member member, const Progress& progress) {
  entries_[member].progress = progress;
  reached_ = std::max(reached_, progress.sent);
}

void Membership::leave(Member member, bool done) {
  entries_[member].presence = done ? Presence::kDone : Presence::kAway;
}

void Membership::go_to(const Progress& progress) {
  stop_expecting();
  for (auto& [member, entry] : entries_) {
    if (entry.has_left()) entry.progress = progress;
  }
}

bool Membership::stop_expecting() {
  bool any = false;
  for (auto& [member, entry] : entries_) {
    if (entry.presence != Presence::kExpected) continue;
    entry.presence = Presence::kAway;
    any = true;
  }
  return any;
}

void Membership::clear() {
  entries_.clear();
  reached_ = 0;
  reserved_.reset();
}

std::vector<MemberRecord> Membership::record() const {
  std::vector<MemberRecord> record;
  for (const auto& [member, entry] : entries_)
    record.push_back({.member = member, .presence = entry.presence, .progress = entry.progress});
  return record;
}

std::optional<Turn> Membership::furthest_here() const {
  std::optional<Turn> furthest;
  for (const auto& [member, entry] : entries_) {
    if (entry.presence == Presence::kHere)
      furthest = std::max(furthest.value_or(0), entry.progress.sent);
  }
  return furthest;
}

Turn Membership::to_reserve(Turn granted, Turn due) const {
  const Turn least = std::max(granted, frontier());
  const std::optional<Turn> here = furthest_here();
  return here ? std::max(least, std::min(*here + lead_, due)) : least;
}

bool Membership::outruns_record(bool paces, Turn due) {
  if (paces) {
    Turn pace = 0;
    for (auto& [member, entry] : entries_) {
      const Turn sent = entry.progress.sent;
      if (entry.presence == Presence::kHere)
        pace = std::max(pace, sent - std::min(sent, entry.paced));
      entry.paced = sent;
    }
    // A job that slows down may be fast again soon.
    lead_ = std::clamp(std::max(kLeadSeconds * pace, lead_ / 2), kLeastLead, kMostLead);
  }
  const std::optional<Turn> furthest = furthest_here();
  if (!furthest) return false;
  if (!reserved_) return true;
  const bool outruns = *reserved_ < due && *reserved_ <= *furthest + lead_ / 2;
  // The lead was to last for seconds, and did not last for one.
  if (outruns && !paces) lead_ = std::min(2 * lead_, kMostLead);
  return outruns;
}

void Membership::restore(const std::vector<MemberRecord>& record, Turn reserved, Turn reached) {
  clear();
  for (const MemberRecord& of : record) {
    Entry& entry = entries_[of.member];
    entry.presence = of.presence;
    entry.progress = of.progress;
    if (of.presence == Presence::kHere) entry.presence = Presence::kExpected;
    if (entry.presence == Presence::kExpected) entry.progress.sent = reserved;
  }
  reached_ = std::max(reached, reserved);
  reserved_ = reserved;
}

}  // namespace spdld::job
