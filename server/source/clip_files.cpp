// SPDX-License-Identifier: Apache-2.0
#include "source/clip_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/rng.h"
#include "source/digest_text.h"
#include "source/stream_choice.h"

namespace spdld::source {
namespace {

using End = ClipsSpec::End;
using Sampling = ClipsSpec::Sampling;
using Unit = ClipsSpec::Unit;

constexpr double kMostSeconds = 1e9;
constexpr const char* kTooShort =
    "too short for one ('end: pad' or 'end: loop' makes one all the same)";

// All that decides where a file's clips begin, but the file.
std::string key_of(const ClipsSpec& spec) {
  std::string key = fmt::format(
      "clips {} stream {} frames {} stride {} hop {} seconds {:.17g} hop {:.17g} sampling {} "
      "per_file {} stack {} end {} audio {} {}",
      static_cast<int>(spec.unit), spec.stream, spec.frames, spec.stride, spec.hop_frames,
      spec.seconds, spec.hop_seconds, static_cast<int>(spec.sampling), spec.per_file, spec.stack,
      static_cast<int>(spec.end), spec.audio.empty() ? "no" : "with", spec.audio_stream);
  return key;
}

// Whether it can be brought in pieces, or need not be.
bool has_packets(const StreamRecord& stream) {
  switch (stream.info.access) {
    case StreamInfo::Access::kPackets: return !stream.packets.empty();
    case StreamInfo::Access::kPcm: return stream.info.codec->block_align > 0;
    case StreamInfo::Access::kDemux: return true;
  }
  return false;
}

// The fault of a member of a shard without the shard's path, with which its text begins, as if the
// shard were to blame.
std::string_view own_words(std::string_view text, std::string_view uri) {
  const std::size_t end = text.find(": ");
  const std::size_t slash = uri.rfind('/');
  if (end == std::string_view::npos || slash == std::string_view::npos) return text;
  const std::string_view path = text.substr(0, end);
  const std::string_view shard = uri.substr(0, slash);
  const bool is_shards = path.ends_with(shard) && (path.size() == shard.size() ||
                                                   path[path.size() - shard.size() - 1] == '/');
  return is_shards ? text.substr(end + 2) : text;
}

class Cutter {
 public:
  Cutter(const ClipsSpec& spec, const Source& source, std::size_t part, const ClipLimits& limits,
         std::vector<ClipFault>& faults)
      : spec_(spec), source_(source), part_(part), limits_(limits), faults_(faults) {}

  Result<ClipFiles> cut(std::shared_ptr<const MediaIndex> index);

 private:
  bool of_frames() const { return spec_.unit == Unit::kFrames; }
  bool told_one_by_one() const {
    return spec_.sampling == Sampling::kTimestamps || spec_.sampling == Sampling::kKeyframes;
  }
  void fault(const std::string& reason, const ClipFile& file, const Status& status = {},
             const std::string& more = {});
  // How large the file is, or the member of a shard.
  std::uint64_t bytes_of(const ClipFile& file) const {
    const std::optional<std::uint64_t> listed = source_.listed_bytes(file.item, part_);
    return listed.value_or(file.entry->stamp.size_bytes);
  }
  Status add_record(ClipFile& file, const MediaRecord& record);
  Result<ClipSound> sound_of(const ClipFile& file, const MediaRecord& record) const;
  Status add_starts(const ClipFile& file);
  std::optional<std::uint64_t> start_at(const ClipFile& file, double time) const;
  Result<std::vector<double>> times_of(const ClipFile& file) const;
  void widen(const ClipFile& file, const ClipSound& sound);
  void widen_picture(const ClipFile& file);
  void finish();

  const ClipsSpec& spec_;
  const Source& source_;
  const std::size_t part_;
  const ClipLimits limits_;
  std::vector<ClipFault>& faults_;
  ClipFiles out_;
};

void Cutter::fault(const std::string& reason, const ClipFile& file, const Status& status,
                   const std::string& more) {
  auto found = std::find_if(faults_.begin(), faults_.end(),
                            [&](const ClipFault& known) { return known.reason == reason; });
  if (found == faults_.end()) {
    std::string example = source_.uri(file.item);
    if (!more.empty()) example += " (" + more + ")";
    faults_.push_back({.reason = reason, .example = std::move(example), .status = {}});
    found = faults_.end() - 1;
    if (!status.ok())
      found->status = Status(status.code(), source_.uri(file.item) + ": " + status.message());
  }
  ++found->files;
}

Result<ClipFiles> Cutter::cut(std::shared_ptr<const MediaIndex> index) {
  out_.spec = spec_;
  out_.first.push_back(0);
  out_.shape.kind = of_frames() ? StreamInfo::Kind::kVideo : StreamInfo::Kind::kAudio;
  out_.sound_shape.kind = StreamInfo::Kind::kAudio;
  for (std::uint64_t item = 0; item < source_.size(); ++item) {
    ClipFile file;
    file.item = item;
    file.identity = source_.split_hash(item);
    file.entry = index->find(source_.part_key(item, part_));
    SPDLD_CHECK(file.entry != nullptr);
    if (file.entry->code != Code::kOk) {
      const std::string why(own_words(file.entry->text, source_.uri(item)));
      fault("not readable as media", file, {file.entry->code, why}, why);
      continue;
    }
    const std::optional<MediaRecord> record = read_media_record(file.entry->text, index->codecs());
    if (!record) return error(Code::kDataLoss, "the index of the media files is damaged");
    for (const std::string_view text : record->faults)
      fault("with this fault in their headers: " + std::string(text), file);
    SPDLD_TRY(add_record(file, *record));
  }
  out_.index = std::move(index);
  finish();
  return std::move(out_);
}

Status Cutter::add_record(ClipFile& file, const MediaRecord& record) {
  const auto kind = of_frames() ? StreamInfo::Kind::kVideo : StreamInfo::Kind::kAudio;
  const StreamRecord* const stream = choose_stream(record, kind, spec_.stream);
  if (stream == nullptr) {
    fault(no_stream_text(kind, spec_.stream), file,
          {Code::kInvalidArgument, "it is " + no_stream_text(kind, spec_.stream)});
    return {};
  }
  file.info = stream->info;
  file.frames = stream->frames;
  file.packets = stream->packets;
  const double rate = static_cast<double>(file.info.codec->sample_rate);
  file.length = of_frames() ? file.frames.size() : file.info.samples;
  if (file.length == 0 || (!of_frames() && rate <= 0)) {
    fault(of_frames() ? "with a video that has no frame" : "without a sample of sound", file,
          {Code::kDataLoss, of_frames() ? "its video has no frame" : "it has no sample of sound"});
    return {};
  }
  if (!has_packets(*stream)) {
    fault("that do not tell where their packets are", file,
          {Code::kDataLoss, "it does not tell where its packets are"});
    return {};
  }
  if (file.info.access == StreamInfo::Access::kDemux && bytes_of(file) > limits_.item_bytes) {
    fault(fmt::format("that can only be read whole and have more than the {} bytes that an item "
                      "may have (remux such a file to mp4 or mkv)",
                      limits_.item_bytes),
          file,
          {Code::kResourceExhausted,
           fmt::format("it can only be read whole and has {} bytes, more than the {} that an item "
                       "may have; remux it to mp4 or mkv",
                       bytes_of(file), limits_.item_bytes)});
    return {};
  }
  file.grid = {.sampling = spec_.sampling,
               .end = spec_.end,
               .per_file = static_cast<std::uint64_t>(spec_.per_file)};
  if (of_frames()) {
    file.grid.span = static_cast<std::uint64_t>(spec_.span_frames());
    file.grid.hop =
        static_cast<double>(spec_.hop_frames > 0 ? spec_.hop_frames : spec_.frames * spec_.stride);
  } else {
    file.grid.span =
        std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(spec_.seconds * rate)));
    // Less than a sample apart, windows would be the same ones again.
    file.grid.hop =
        std::max(1.0, (spec_.hop_seconds > 0 ? spec_.hop_seconds : spec_.seconds) * rate);
  }
  ClipSound sound;
  if (!spec_.audio.empty()) {
    Result<ClipSound> found = sound_of(file, record);
    if (!found) {
      fault(found.error().message(), file, {found.error().code(), found.error().message()});
      return {};
    }
    sound = *std::move(found);
  }
  file.first_start = out_.starts.size();
  if (told_one_by_one()) {
    SPDLD_TRY(add_starts(file));
    file.items = out_.starts.size() - file.first_start;
  } else {
    file.items = file.grid.count(file.length);
    if (spec_.stack) file.items = std::min<std::uint64_t>(file.items, 1);
  }
  if (file.items == 0) {
    // add_starts() has told of timestamps.
    if (spec_.sampling != Sampling::kTimestamps)
      fault(spec_.end == End::kDrop ? kTooShort : "without a key frame", file);
    return {};
  }
  if (file.items > limits_.items - std::min(limits_.items, out_.size()))
    return {Code::kResourceExhausted,
            fmt::format("there are more than the {} items that a dataset may have; let them "
                        "lie further apart (hop)",
                        limits_.items)};
  widen(file, sound);
  out_.first.push_back(out_.size() + file.items);
  out_.files.push_back(std::move(file));
  if (!spec_.audio.empty()) out_.sounds.push_back(std::move(sound));
  return {};
}

Result<ClipSound> Cutter::sound_of(const ClipFile& file, const MediaRecord& record) const {
  const StreamRecord* const stream =
      choose_stream(record, StreamInfo::Kind::kAudio, spec_.audio_stream);
  if (stream == nullptr)
    return error(Code::kInvalidArgument,
                 no_stream_text(StreamInfo::Kind::kAudio, spec_.audio_stream));
  if (stream->info.access == StreamInfo::Access::kDemux)
    return error(Code::kInvalidArgument,
                 "that do not tell the times of their sound beside those of the video");
  if (stream->info.is_off_clock)
    return error(Code::kInvalidArgument,
                 "whose sound's times go back, or leap too often, so that it cannot be placed "
                 "beside the video ('ffmpeg -i FILE -c:v copy -af aresample=async=1 OUT' makes "
                 "its times even)");
  if (stream->info.samples == 0 || stream->info.codec->sample_rate <= 0)
    return error(Code::kDataLoss, "without a sample of sound");
  if (!has_packets(*stream))
    return error(Code::kDataLoss, "that do not tell where the packets of their sound are");
  ClipSound sound;
  sound.info = stream->info;
  sound.packets = stream->packets;
  sound.gaps = stream->gaps;
  if (sound.info.access == StreamInfo::Access::kPackets)
    sound.clock = sound_clock(sound.info, sound.packets);
  else
    sound.clock.samples_per_tick =
        sound.info.time_base.value() * static_cast<double>(sound.info.codec->sample_rate);
  if (file.length < 2)
    return error(Code::kInvalidArgument, "with a video of one frame, whose length is not told");
  if (file.frames.is_even())
    sound.samples = static_cast<std::uint64_t>(
        std::llround(file.mean_frame_seconds() * static_cast<double>(spec_.frames * spec_.stride) *
                     static_cast<double>(sound.info.codec->sample_rate)));
  return sound;
}

Result<std::vector<double>> Cutter::times_of(const ClipFile& file) const {
  if (spec_.times_field.empty()) return spec_.times;
  for (const SourceField& field : source_.fields()) {
    if (field.kind != SourceField::Kind::kValue || field.name != spec_.times_field) continue;
    const Value value = source_.value(file.item, field.index);
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
                   fmt::format("{}: {} of '{}' is no time in seconds", source_.uri(file.item), time,
                               spec_.times_field));
    }
    return times;
  }
  return error(Code::kInternal, "no field " + spec_.times_field);
}

Status Cutter::add_starts(const ClipFile& file) {
  const auto add = [&](std::uint64_t start) {
    if (file.grid.fits(file.length, start)) out_.starts.push_back(start);
  };
  if (spec_.sampling == Sampling::kKeyframes) {
    PacketTable::Block first;
    if (!file.packets.next(first)) {
      fault("that do not tell which frames are key frames", file);
      return {};
    }
    std::vector<std::int64_t> keys;
    PacketReader reader(file.packets, first);
    for (MediaPacket packet; reader.next(packet);) {
      if (packet.key && !packet.discard && packet.pts != kNoTime) keys.push_back(packet.pts);
    }
    std::sort(keys.begin(), keys.end());
    for (const std::int64_t key : keys) add(file.frames.at(key));
    return {};
  }
  SPDLD_ASSIGN(const std::vector<double> times, times_of(file));
  const std::size_t before = out_.starts.size();
  std::optional<double> behind;
  bool any_within = false;
  for (const double time : times) {
    const std::optional<std::uint64_t> start = start_at(file, time);
    if (start && *start < file.length) {
      any_within = true;
      add(*start);
    } else if (!behind) {
      behind = time;
    }
  }
  if (any_within && out_.starts.size() == before) fault(kTooShort, file);
  if (behind)
    fault("with timestamps at or behind their end, where nothing begins", file, {},
          fmt::format("{:.10g} s", *behind));
  return {};
}

// The frame or sample of that time; none: it is behind the last frame.
std::optional<std::uint64_t> Cutter::start_at(const ClipFile& file, double time) const {
  if (!of_frames())
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

// Makes the shapes those of this file's clips, too.
void Cutter::widen(const ClipFile& file, const ClipSound& sound) {
  const bool is_first = out_.files.empty();
  const auto widen_sound = [is_first](ClipShape& shape, const CodecParameters& codec,
                                      std::uint64_t samples, std::uint64_t most) {
    const auto same = [is_first](auto& known, auto value) {
      known = is_first || known == value ? value : 0;
    };
    same(shape.sample_rate, codec.sample_rate);
    same(shape.channels, codec.channels);
    same(shape.samples, static_cast<std::int64_t>(samples));
    shape.max_samples = std::max(shape.max_samples, static_cast<std::int64_t>(most));
    shape.max_seconds = std::max(shape.max_seconds, static_cast<double>(most) / codec.sample_rate);
    // One more than is told shows that there are too many.
    const ClipShape::OfRate of_rate{.sample_rate = codec.sample_rate,
                                    .samples = static_cast<std::int64_t>(samples)};
    if (shape.of_rates.size() <= ClipShape::kMostRates &&
        std::find(shape.of_rates.begin(), shape.of_rates.end(), of_rate) == shape.of_rates.end())
      shape.of_rates.push_back(of_rate);
  };
  const CodecParameters& codec = *file.info.codec;
  ClipShape& shape = out_.shape;
  shape.repeats = spec_.stack ? spec_.per_file : 0;
  if (!of_frames()) {
    widen_sound(shape, codec, file.grid.span, file.grid.span);
    return;
  }
  shape.frames = spec_.frames;
  widen_picture(file);
  if (spec_.audio.empty()) return;
  // No clip of unevenly spaced frames lasts longer than all of them, and as many more.
  const double most =
      (static_cast<double>(file.length) + static_cast<double>(spec_.frames * spec_.stride)) *
      file.mean_frame_seconds() * static_cast<double>(sound.info.codec->sample_rate);
  widen_sound(out_.sound_shape, *sound.info.codec, sound.samples,
              sound.samples > 0 ? sound.samples : static_cast<std::uint64_t>(std::min(most, 1e15)));
}

void Cutter::widen_picture(const ClipFile& file) {
  const auto upright = [](const ClipFile& of) {
    const bool turned = of.info.rotation == 90 || of.info.rotation == 270;
    const CodecParameters& codec = *of.info.codec;
    return turned ? std::pair(codec.height, codec.width) : std::pair(codec.width, codec.height);
  };
  const auto [width, height] = upright(file);
  ClipShape& shape = out_.shape;
  shape.max_width = std::max(shape.max_width, width);
  shape.max_height = std::max(shape.max_height, height);
  const auto [first_width, first_height] =
      out_.files.empty() ? std::pair(width, height) : upright(out_.files.front());
  if (shape.sizes.empty() && width == first_width && height == first_height) {
    shape.width = width;
    shape.height = height;
  } else if (shape.sizes.empty()) {
    shape.width = shape.height = 0;
    shape.sizes = fmt::format("{} has {}x{} pixels, {} {}x{}", source_.uri(out_.files.front().item),
                              first_width, first_height, source_.uri(file.item), width, height);
  }
}

void Cutter::finish() {
  for (ClipShape* const shape : {&out_.shape, &out_.sound_shape}) {
    const bool is_known = shape->of_rates.size() <= ClipShape::kMostRates &&
                          std::all_of(shape->of_rates.begin(), shape->of_rates.end(),
                                      [](const ClipShape::OfRate& of) { return of.samples > 0; });
    if (!is_known) shape->of_rates.clear();
  }
  DigestBuilder listing;
  DigestBuilder values;
  listing.add(source_.listing_digest());
  listing.add(key_of(spec_));
  values.add(source_.values_digest());
  for (const ClipFile& file : out_.files) {
    const std::uint64_t head[] = {file.item,
                                  file.length,
                                  file.items,
                                  static_cast<std::uint64_t>(file.info.index),
                                  static_cast<std::uint64_t>(file.info.time_base.num),
                                  static_cast<std::uint64_t>(file.info.time_base.den),
                                  static_cast<std::uint64_t>(file.info.codec->sample_rate)};
    listing.add({reinterpret_cast<const char*>(head), sizeof head});
    listing.add(file.frames.text());
    values.add(file.entry->text);
  }
  listing.add({reinterpret_cast<const char*>(out_.starts.data()),
               out_.starts.size() * sizeof(std::uint64_t)});
  out_.listing_digest = listing.finish();
  out_.values_digest = values.finish();
}

}  // namespace

std::size_t ClipFiles::file_of(std::uint64_t item) const {
  SPDLD_CHECK(item < size());
  return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), item) -
                                  first.begin() - 1);
}

std::uint64_t ClipFiles::start(const ClipFile& file, std::uint64_t k,
                               std::uint64_t epoch_key) const {
  if (spec.sampling == Sampling::kTimestamps || spec.sampling == Sampling::kKeyframes)
    return starts[file.first_start + k];
  return file.grid.start(file.length, k, mix64(epoch_key, file.identity));
}

double ClipFile::mean_frame_seconds() const {
  if (length < 2) return 0;
  return static_cast<double>(frames.time(length - 1) - frames.time(0)) * info.time_base.value() /
         static_cast<double>(length - 1);
}

double ClipFiles::seconds(const ClipFile& file, std::uint64_t start) const {
  if (spec.unit == Unit::kFrames)
    return static_cast<double>(file.frames.time(start)) * file.info.time_base.value();
  return static_cast<double>(start) / static_cast<double>(file.info.codec->sample_rate);
}

Result<ClipFiles> cut_clips(const ClipsSpec& spec, const Source& source, std::size_t part,
                            std::shared_ptr<const MediaIndex> index, const ClipLimits& limits,
                            std::vector<ClipFault>& faults) {
  return Cutter(spec, source, part, limits, faults).cut(std::move(index));
}

}  // namespace spdld::source
