// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_starts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <variant>
#include <vector>

#include "source/clips/clip_units.h"

namespace spdld::source {
namespace {

constexpr double kMostSeconds = 1e9;
// How long the frame of a file with a single one is shown, where that is not told.
constexpr double kUnknownFrameSeconds = 0.04;

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
      if (std::abs(time) <= kMostSeconds) continue;
      return error(Code::kInvalidArgument,
                   fmt::format("{}: {} of '{}' is no time in seconds", source.uri(file.item), time,
                               spec.times_field));
    }
    return times;
  }
  return error(Code::kInternal, "no field " + spec.times_field);
}

// A file's frames or samples on its clock. What follows calls both frames.
class Shown {
 public:
  Shown(const ClipsSpec& spec, const ClipFile& file)
      : file_(file), of_frames_(spec.unit == ClipsSpec::Unit::kFrames) {
    if (!of_frames_) {
      last_ = static_cast<double>(file.length - 1);
      end_ = last_ + 1;
      return;
    }
    const StreamInfo& info = file.info;
    first_ = static_cast<double>(file.frames.time(0));
    last_ = static_cast<double>(file.frames.time(file.length - 1));
    const bool is_told = info.end_pts != kNoTime;
    const double told = is_told ? static_cast<double>(info.end_pts) - last_ : 0;
    if (file.length > 1)
      each_ = (last_ - first_) / static_cast<double>(file.length - 1);
    else
      each_ = told > 0 ? told : seconds_to_ticks(kUnknownFrameSeconds, info.time_base);
    end_ = told > 0 ? last_ + told : last_ + each_;
  }

  struct Place {
    std::uint64_t frame = ClipFiles::kNoStart;
    double off_seconds = 0;  // from its time
    bool is_far = false;     // by more than a tenth of a frame
  };
  // The frame that a time names.
  Place at(double seconds) const {
    const double time = of_frames_ ? seconds_to_ticks(seconds, file_.info.time_base)
                                   : seconds * file_.info.codec->sample_rate;
    const double rounding = rounding_of(time);
    if (!(time >= first_ - each_ / 2 - rounding && time <= end_ + each_ / 2 + rounding)) return {};
    if (!of_frames_)
      return {.frame = static_cast<std::uint64_t>(nearest_sample(std::clamp(time, first_, last_)))};
    const FrameTable::Neighbours near =
        file_.frames.around(static_cast<std::int64_t>(std::floor(time)));
    const double before = time - static_cast<double>(near.time);
    const double behind = static_cast<double>(near.next) - time;
    const bool is_between = near.next > near.time;
    const bool is_next = is_between && behind < before - rounding;
    const double step =
        is_between ? static_cast<double>(near.next) - static_cast<double>(near.time) : each_;
    const double off = is_next ? behind : std::abs(before);
    return {.frame = near.frame + (is_next ? 1 : 0),
            .off_seconds = off * file_.info.time_base.value(),
            .is_far = off > step / 10};
  }

  double first_seconds() const { return seconds(first_); }
  double end_seconds() const { return seconds(end_); }

 private:
  double seconds(double time) const {
    return of_frames_ ? time * file_.info.time_base.value() : time / file_.info.codec->sample_rate;
  }

  const ClipFile& file_;
  const bool of_frames_;
  // In ticks, or samples.
  double first_ = 0;
  double last_ = 0;
  double end_ = 0;   // of the last one
  double each_ = 1;  // between two of them on average
};

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
    const std::uint64_t start = file.frames.around(key).frame;
    if (file.grid.fits(file.length, start)) starts.push_back(start);
  }
}

}  // namespace

Status add_starts(const ClipsSpec& spec, const Source& source, const ClipFile& file,
                  ClipFaults& faults, ClipFiles& clips) {
  std::vector<std::uint64_t>& starts = clips.starts;
  if (spec.sampling == ClipsSpec::Sampling::kKeyframes) {
    add_key_frames(file, faults, starts);
    return {};
  }
  SPDLD_ASSIGN(const std::vector<double> times, times_of(spec, source, file));
  const bool is_rows = !spec.times_field.empty();
  const Shown shown(spec, file);
  const std::size_t before = starts.size();
  std::vector<double> outside;
  std::vector<double> far;
  double far_off = 0;  // of the first of these
  bool any_within = false;
  for (const double time : times) {
    const Shown::Place place = shown.at(time);
    if (place.frame == ClipFiles::kNoStart) {
      outside.push_back(time);
      if (!is_rows) continue;
      clips.missed.push_back({.start = starts.size(), .seconds = time});
      starts.push_back(place.frame);
      continue;
    }
    any_within = true;
    if (place.is_far && far.empty()) far_off = place.off_seconds;
    if (place.is_far) far.push_back(time);
    if (file.grid.fits(file.length, place.frame)) starts.push_back(place.frame);
  }
  if (any_within && starts.size() == before) faults.add(kTooShortForClip, file.item);
  if (!outside.empty()) {
    const std::string example = fmt::format("{:.10g} s", outside.front());
    if (is_rows)
      faults.add_times("outside of their file, each an error of its row", file.item, outside.size(),
                       example);
    else
      faults.add("with timestamps before their begin or behind their end, where nothing begins",
                 file.item, {}, example);
  }
  if (!far.empty())
    faults.add_times("further than a tenth of a frame from every frame, whose nearest one is taken",
                     file.item, far.size(),
                     fmt::format("{:.10g} s, {:.3g} s off", far.front(), far_off));
  return {};
}

std::string missed_time_text(const ClipsSpec& spec, const ClipFile& file) {
  const Shown shown(spec, file);
  return fmt::format(
      "its file has nothing at that time, but from {:.10g} s to {:.10g} s; correct "
      "'{}' of this row",
      shown.first_seconds(), shown.end_seconds(), spec.times_field);
}

}  // namespace spdld::source
