// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_packets.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "op/clips_spec.h"
#include "op/gradual_refresh.h"

namespace spdld::source {
namespace {

// From a block on. `refresh`: of a stream that refreshes gradually; null: any key packet is a
// begin.
bool find_from(const PacketTable& table, const PacketTable::Block& from, GradualRefresh* refresh,
               std::span<const std::int64_t> times, PacketRange& range) {
  SPDLD_CHECK(times.size() <= ClipsSpec::kMostFrames);
  std::bitset<ClipsSpec::kMostFrames> found;
  std::size_t left = 0;  // times that differ and were not found yet
  for (std::size_t i = 0; i < times.size(); ++i) left += i == 0 || times[i] != times[i - 1] ? 1 : 0;
  PacketReader reader(table, from);
  range.begin = from.first;
  for (MediaPacket packet; left > 0 && reader.next(packet);) {
    if (refresh != nullptr && !found[0]) refresh->add(packet, reader.number());
    const bool is_begin = refresh == nullptr && packet.key && packet.pts <= times.front();
    if (is_begin && !found[0] && packet.pts != kNoTime) range.begin = reader.number();
    if (packet.discard) continue;
    const auto at = std::lower_bound(times.begin(), times.end(), packet.pts);
    if (at == times.end() || *at != packet.pts) continue;
    const auto number = static_cast<std::size_t>(at - times.begin());
    left -= found[number] ? 0 : 1;
    found[number] = true;
    range.end = reader.number() + 1;
  }
  if (refresh != nullptr && refresh->found()) range.begin = refresh->begin();
  return left == 0;
}

// A decoder must have seen this before the packet of the first sample.
struct PreRoll {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;  // of the packets before those
  double samples = 0;       // at least so many
};

PreRoll pre_roll(const CodecParameters& codec) {
  const std::string_view name = codec.codec;
  PreRoll roll{.samples = static_cast<double>(std::max(codec.seek_preroll, 0))};
  if (name.starts_with("pcm_") || name == "flac" || name == "alac" || name == "wavpack" ||
      name == "tta")
    return roll;
  // Neighbours overlap, and what is decoded first after a reset is not yet right.
  roll.packets = 2;
  // A frame may begin in the bytes of those before it, up to 511 of them, which headers and side
  // information do not count for.
  if (name == "mp3" || name == "mp2" || name == "mp1") {
    roll.packets = 3;
    roll.bytes = 511;
  }
  // Files ask for 80 ms, after which a decoder may still be far off where it predicts from before.
  if (name == "opus") {
    constexpr double kSeconds = 0.16;
    roll.samples = std::max(roll.samples, static_cast<double>(codec.sample_rate) * kSeconds);
  }
  return roll;
}

// The packets that were read last.
class Latest {
 public:
  struct Packet {
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
    double position = 0;  // of its first sample
  };

  void add(const Packet& packet) { packets_[count_++ % kMost] = packet; }
  // The number of the packet from which on decoding makes the sample at `position` right, which the
  // latest one holds, or by rounding the one before that. `otherwise`: there is none.
  std::uint64_t begin_for(double position, const PreRoll& roll, std::uint64_t otherwise) const {
    std::uint64_t begin = otherwise;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < std::min(count_, kMost); ++i) {
      const Packet& packet = packets_[(count_ - 1 - i) % kMost];
      begin = packet.number;
      if (i >= 1 + roll.packets && bytes >= roll.bytes &&
          packet.position <= position - roll.samples)
        break;
      if (i >= roll.packets) bytes += packet.bytes - std::min(packet.bytes, kFrameHead);
    }
    return begin;
  }

 private:
  static constexpr std::size_t kMost = 256;
  // The most that mp3 has of header, checksum and side information.
  static constexpr std::uint64_t kFrameHead = 4 + 2 + 32;

  std::array<Packet, kMost> packets_;
  std::size_t count_ = 0;
};

}  // namespace

bool find_frame_packets(const PacketTable& table, const StreamInfo& info,
                        std::span<const std::int64_t> times, PacketRange& range) {
  PacketTable::Block block;
  PacketTable::Block before;
  if (times.empty() || !table.find(times.front(), block, before)) return false;
  PacketTable::Block first;
  if (!info.refreshes_gradually) {
    if (find_from(table, block, nullptr, times, range)) return true;
    // Times that jump back put packets before the block that seems to hold them.
    return table.next(first) && find_from(table, first, nullptr, times, range);
  }
  const std::size_t until_whole = pictures_until_whole(*info.codec);
  GradualRefresh near(until_whole, times.front());
  if (find_from(table, before, &near, times, range) && near.found()) return true;
  GradualRefresh far(until_whole, times.front());
  return table.next(first) && find_from(table, first, &far, times, range);
}

SoundClock sound_clock(const StreamInfo& info, const PacketTable& table) {
  SoundClock clock;
  clock.samples_per_tick = info.time_base.value() * static_cast<double>(info.codec->sample_rate);
  PacketTable::Block first;
  if (clock.samples_per_tick <= 0 || !table.next(first)) return clock;
  PacketReader reader(table, first);
  double pending = 0;  // samples that are still to be cut off: they may be more than a packet has
  for (MediaPacket packet; reader.next(packet);) {
    if (packet.skip_samples > 0) pending = packet.skip_samples;
    const double samples = static_cast<double>(packet.duration) * clock.samples_per_tick;
    const double skipped = std::min(pending, samples);
    pending -= skipped;
    if (packet.discard || packet.pts == kNoTime || (skipped > 0 && skipped >= samples)) continue;
    clock.begin = packet.pts + std::llround(skipped / clock.samples_per_tick);
    break;
  }
  return clock;
}

PacketRange find_sound_packets(const PacketTable& table, const StreamInfo& info,
                               const SoundClock& clock, std::uint64_t first,
                               std::uint64_t samples) {
  const PreRoll roll = pre_roll(*info.codec);
  const auto from = static_cast<double>(first);
  const double to = from + static_cast<double>(samples);
  const auto ticks = static_cast<std::int64_t>(from / clock.samples_per_tick);
  PacketTable::Block at;
  PacketTable::Block block;
  // From the block before the one that holds the first sample: it has all that comes before that.
  if (!table.find(clock.begin + ticks, at, block)) return {};
  Latest latest;
  PacketRange range;
  bool found = false;
  double position = 0;
  std::size_t behind = 0;
  PacketReader reader(table, block);
  for (MediaPacket packet; behind <= 1 && reader.next(packet);) {
    if (packet.pts != kNoTime)
      position = static_cast<double>(packet.pts - clock.begin) * clock.samples_per_tick;
    if (!found && position > from) {
      // The packet before this one holds the first sample.
      range.begin = latest.begin_for(from, roll, reader.number());
      found = true;
    }
    if (found && position >= to) ++behind;
    range.end = reader.number() + 1;
    // A tag between frames of mp3 is no packet that a frame may begin in.
    if (packet.duration > 0 || roll.bytes == 0)
      latest.add({reader.number(), packet.size_bytes, position});
    position += static_cast<double>(packet.duration) * clock.samples_per_tick;
  }
  if (!found) range.begin = latest.begin_for(from, roll, range.end);
  return range;
}

bool take_packets(const PacketTable& table, const PacketRange& range, bool gap,
                  std::vector<MediaPacket>& packets) {
  if (range.begin >= range.end) return false;
  PacketTable::Block block;
  do {
    if (!table.next(block)) return false;
  } while (block.first + block.packets <= range.begin);
  PacketReader reader(table, block);
  MediaPacket packet;
  do {
    if (!reader.next(packet)) return false;
    if (reader.number() < range.begin) continue;
    packet.gap = gap && reader.number() == range.begin;
    packets.push_back(packet);
  } while (reader.number() + 1 < range.end);
  return true;
}

}  // namespace spdld::source
