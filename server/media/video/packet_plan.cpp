// SPDX-License-Identifier: Apache-2.0
#include "media/video/packet_plan.h"

#include <algorithm>

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
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= packets.size(); ++i) {
    // Pictures that are shown before a key frame and stand behind it are made of those before it.
    const bool splits =
        i == packets.size() || packets[i].gap || (packets[i].key && !has_wanted_before(packets, i));
    if (!splits) continue;
    plan_group(packets, begin, i, codec, disposable);
    begin = i;
  }
}

bool PacketPlan::has_wanted_before(std::span<const MediaPacket> packets, std::size_t key) const {
  for (std::size_t i = key + 1; i < packets.size() && !packets[i].key && !packets[i].gap; ++i) {
    if (is_wanted_[i] != 0 && packets[i].pts < packets[key].pts) return true;
  }
  return false;
}

void PacketPlan::plan_group(std::span<const MediaPacket> packets, std::size_t begin,
                            std::size_t end, const Codec& codec,
                            std::span<const std::uint8_t> disposable) {
  std::size_t last = end;
  while (last > begin && is_wanted_[last - 1] == 0) --last;
  if (last == begin) return;  // nothing is wanted
  if (!codec.ends_early) last = end;
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
