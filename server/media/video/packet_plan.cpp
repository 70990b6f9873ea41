// SPDX-License-Identifier: Apache-2.0
#include "media/video/packet_plan.h"

#include <algorithm>

#include "op/gradual_refresh.h"

namespace spdld::media {

void PacketPlan::make(std::span<const MediaPacket> packets, std::span<const std::int64_t> wanted,
                      const Codec& codec, std::span<const std::uint8_t> disposable) {
  steps_.assign(packets.size(), Step::kSkip);
  is_wanted_.assign(packets.size(), 0);
  packet_of_.assign(wanted.size(), kNone);
  sent_ = 0;
  sent_to_ = 0;
  found_ = 0;
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const auto at = std::lower_bound(wanted.begin(), wanted.end(), packets[i].pts);
    if (packets[i].discard || at == wanted.end() || *at != packets[i].pts) continue;
    is_wanted_[i] = 1;
    std::size_t& packet = packet_of_[static_cast<std::size_t>(at - wanted.begin())];
    found_ += packet == kNone ? 1 : 0;
    packet = i;
  }
  Group group;
  for (std::size_t i = 1; i <= packets.size(); ++i) {
    // Pictures that are shown before a key frame and stand behind it are made of those before it.
    const bool splits =
        i == packets.size() || packets[i].gap || (packets[i].key && !has_wanted_before(packets, i));
    if (!splits) continue;
    group.end = i;
    plan_group(packets, group, codec, disposable);
    const bool is_gap = i < packets.size() && packets[i].gap;
    group = {.run = is_gap ? i : group.run, .begin = i};
  }
}

bool PacketPlan::has_wanted_before(std::span<const MediaPacket> packets, std::size_t key) const {
  for (std::size_t i = key + 1; i < packets.size() && !packets[i].key && !packets[i].gap; ++i) {
    if (is_wanted_[i] != 0 && packets[i].pts < packets[key].pts) return true;
  }
  return false;
}

// A group of a stream that refreshes gradually: a decoder begins so far back that the first wanted
// frame is whole, and has seen what is not whole before that. `group.end`: behind the last wanted
// frame.
void PacketPlan::plan_gradual(std::span<const MediaPacket> packets, const Group& group,
                              std::size_t until_whole, std::span<const std::uint8_t> disposable) {
  std::size_t first = group.begin;
  while (is_wanted_[first] == 0) ++first;
  std::int64_t from = packets[first].pts;
  for (std::size_t i = first; i < group.end; ++i)
    if (is_wanted_[i] != 0) from = std::min(from, packets[i].pts);
  GradualRefresh refresh(until_whole, from);
  for (std::size_t i = group.run; i <= first; ++i) refresh.add(packets[i], i);
  // Before the first key frame behind which there is enough, the decoder has what the file has.
  const std::size_t lead = refresh.found() ? refresh.begin() : group.run;
  const std::size_t whole = refresh.found() ? refresh.whole() : group.run;
  const bool goes_on = sent_to_ > lead;
  for (std::size_t i = std::max(lead, sent_to_); i < group.end; ++i) {
    const bool begins = i == lead && !goes_on;
    if (!begins && is_wanted_[i] == 0 && !disposable.empty() && disposable[i] != 0) continue;
    const bool is_tried = i < whole && !goes_on;
    if (begins)
      steps_[i] = is_tried ? Step::kBeginTry : Step::kBegin;
    else
      steps_[i] = is_tried ? Step::kTry : Step::kSend;
    ++sent_;
  }
  sent_to_ = group.end;
}

void PacketPlan::plan_group(std::span<const MediaPacket> packets, const Group& group,
                            const Codec& codec, std::span<const std::uint8_t> disposable) {
  const auto [run, begin, end] = group;
  std::size_t last = end;
  while (last > begin && is_wanted_[last - 1] == 0) --last;
  if (last == begin) return;  // nothing is wanted
  if (!codec.ends_early) last = end;
  if (codec.until_whole > 0) {
    plan_gradual(packets, {.run = run, .begin = begin, .end = last}, codec.until_whole, disposable);
    return;
  }
  const bool goes_on = begin > 0 && sent_to_ == begin && !packets[begin].gap;
  const std::int64_t shown_from = packets[begin].pts;
  for (std::size_t i = begin; i < last; ++i) {
    const bool leads = i > begin && !goes_on && is_wanted_[i] == 0 && packets[i].pts != kNoTime &&
                       shown_from != kNoTime && packets[i].pts < shown_from;
    if (leads && !codec.counts_leading) continue;
    if (i > begin && is_wanted_[i] == 0 && !disposable.empty() && disposable[i] != 0) continue;
    steps_[i] = leads ? Step::kTry : i == begin && !goes_on ? Step::kBegin : Step::kSend;
    ++sent_;
  }
  sent_to_ = last;
}

}  // namespace spdld::media
