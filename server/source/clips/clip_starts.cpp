// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_starts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <variant>

namespace spdld::source {
namespace {

constexpr double kMostSeconds = 1e9;

Result<std::vector<double>> times_of(const ClipsSpec& spec, const Source& source,
                                     const ClipFile& file) {
  if (spec.times_field.empty()) return spec.times;
  for (const SourceField& field : source.fields()) {
    if (field.kind != SourceField::Kind::kValue || field.name != spec.times_field) continue;
    if (field.presence && !std::get<bool>(source.value(file.item, *field.presence)))
      return std::vector<double>();
    const Value value = source.value(file.item, field.index);
    std::vector<double> times;
    if (const auto* const one = std::get_if<double>(&value)) times = {*one};
    if (const auto* const one = std::get_if<std::int64_t>(&value))
      times = {static_cast<double>(*one)};
    if (const auto* const list = std::get_if<std::span<const double>>(&value))
      times.assign(list->begin(), list->end());
    if (const auto* const list = std::get_if<std::span<const std::int64_t>>(&value))
      times.assign(list->begin(), list->end());
    for (const double time : times) {
      if (time >= 0 && time <= kMostSeconds) continue;
      return error(Code::kInvalidArgument,
                   fmt::format("{}: {} of '{}' is no time in seconds", source.uri(file.item), time,
                               spec.times_field));
    }
    return times;
  }
  return error(Code::kInternal, "no field " + spec.times_field);
}

// The frame or sample of that time; none: it is behind the last frame.
std::optional<std::uint64_t> start_at(const ClipsSpec& spec, const ClipFile& file, double time) {
  if (spec.unit == ClipsSpec::Unit::kSeconds)
    return static_cast<std::uint64_t>(
        std::llround(time * static_cast<double>(file.info.codec->sample_rate)));
  // A time that is written in decimal may stand a hair before its frame.
  const double tick = (time + 1e-6) / file.info.time_base.value();
  if (std::abs(tick) > static_cast<double>(kMostTime)) return std::nullopt;
  const std::uint64_t last = file.length - 1;
  const std::uint64_t frame = file.frames.at(static_cast<std::int64_t>(std::floor(tick)));
  const double shown = file.mean_frame_seconds() / file.info.time_base.value();
  if (frame == last && tick > static_cast<double>(file.frames.time(last)) + shown)
    return std::nullopt;
  return frame;
}

void add_key_frames(const ClipFile& file, ClipFaults& faults, std::vector<std::uint64_t>& starts) {
  PacketTable::Block first;
  if (!file.packets.next(first)) {
    faults.add("that do not tell which frames are key frames", file.item);
    return;
  }
  std::vector<std::int64_t> keys;
  PacketReader reader(file.packets, first);
  for (MediaPacket packet; reader.next(packet);) {
    if (packet.key && !packet.discard && packet.pts != kNoTime) keys.push_back(packet.pts);
  }
  std::sort(keys.begin(), keys.end());
  for (const std::int64_t key : keys) {
    const std::uint64_t start = file.frames.at(key);
    if (file.grid.fits(file.length, start)) starts.push_back(start);
  }
}

}  // namespace

Status add_starts(const ClipsSpec& spec, const Source& source, const ClipFile& file,
                  ClipFaults& faults, std::vector<std::uint64_t>& starts) {
  if (spec.sampling == ClipsSpec::Sampling::kKeyframes) {
    add_key_frames(file, faults, starts);
    return {};
  }
  SPDLD_ASSIGN(const std::vector<double> times, times_of(spec, source, file));
  const std::size_t before = starts.size();
  std::optional<double> behind;
  bool any_within = false;
  for (const double time : times) {
    const std::optional<std::uint64_t> start = start_at(spec, file, time);
    if (start && *start < file.length) {
      any_within = true;
      if (file.grid.fits(file.length, *start)) starts.push_back(*start);
    } else if (!behind) {
      behind = time;
    }
  }
  if (any_within && starts.size() == before) faults.add(kTooShortForClip, file.item);
  if (behind)
    faults.add("with timestamps at or behind their end, where nothing begins", file.item, {},
               fmt::format("{:.10g} s", *behind));
  return {};
}

}  // namespace spdld::source
