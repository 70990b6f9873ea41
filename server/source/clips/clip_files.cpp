// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "source/bytes/digest_text.h"
#include "source/clips/clip_shapes.h"
#include "source/clips/clip_starts.h"
#include "source/media_index/stream_choice.h"

namespace spdld::source {
namespace {

using End = ClipsSpec::End;
using Sampling = ClipsSpec::Sampling;
using Unit = ClipsSpec::Unit;

// All that decides where a file's clips begin, but the file.
std::string key_of(const ClipsSpec& spec) {
  std::string key = fmt::format(
      "clips {} stream {} frames {} stride {} hop {} seconds {:.17g} hop {:.17g} sampling {} "
      "per_file {} stack {} end {} audio {} {}",
      static_cast<int>(spec.unit), spec.stream, spec.frames, spec.stride, spec.hop_frames,
      spec.seconds, spec.hop_seconds, static_cast<int>(spec.sampling), spec.per_file, spec.stack,
      static_cast<int>(spec.end), spec.audio.empty() ? "no" : "with", spec.audio_stream);
  // Later additions leave the keys of what was there before as they were, which saved positions
  // depend on.
  if (spec.sampling == Sampling::kWhole)
    key += fmt::format(" min {:.17g} max {:.17g}", spec.min_seconds, spec.max_seconds);
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

class Cutter {
 public:
  Cutter(const ClipsSpec& spec, const Source& source, std::size_t part, const ClipLimits& limits,
         ClipFaults& faults)
      : spec_(spec),
        source_(source),
        part_(part),
        limits_(limits),
        faults_(faults),
        shapes_(spec, source) {}

  Result<ClipFiles> cut(std::shared_ptr<const MediaIndex> index);

 private:
  bool of_frames() const { return spec_.unit == Unit::kFrames; }
  // How large the file is, or the member of a shard.
  std::uint64_t bytes_of(const ClipFile& file) const {
    const std::optional<std::uint64_t> listed = source_.listed_bytes(file.item, part_);
    return listed.value_or(file.entry->stamp.size_bytes);
  }
  Status add_record(ClipFile& file, const MediaRecord& record);
  bool takes_whole(const ClipFile& file);
  std::string fewer_text() const;
  Result<ClipSound> sound_of(const ClipFile& file, const MediaRecord& record) const;
  void finish();

  const ClipsSpec& spec_;
  const Source& source_;
  const std::size_t part_;
  const ClipLimits limits_;
  ClipFaults& faults_;
  ClipShapes shapes_;
  ClipFiles out_;
};

Result<ClipFiles> Cutter::cut(std::shared_ptr<const MediaIndex> index) {
  out_.spec = spec_;
  out_.first.push_back(0);
  const std::uint64_t index_bytes = index->bytes();
  for (std::uint64_t item = 0; item < source_.size(); ++item) {
    ClipFile file;
    file.item = item;
    if (!source_.has_part(item, part_)) {
      faults_.add("without such a part, which is optional", item);
      continue;
    }
    file.identity = source_.split_hash(item);
    file.entry = index->find(source_.part_key(item, part_));
    SPDLD_CHECK(file.entry != nullptr);
    if (file.entry->code != Code::kOk) {
      faults_.add_unreadable(item, file.entry->code, file.entry->text);
      continue;
    }
    const std::optional<MediaRecord> record = read_media_record(file.entry->text, index->codecs());
    if (!record) return error(Code::kDataLoss, "the index of the media files is damaged");
    for (const std::string_view text : record->faults)
      faults_.add("with this fault in their headers: " + std::string(text), item);
    SPDLD_TRY(add_record(file, *record));
    SPDLD_TRY(limits_.memory->cover(index_bytes + out_.memory_bytes()));
  }
  SPDLD_TRY(limits_.memory->resize(index_bytes + out_.memory_bytes()));
  out_.index = std::move(index);
  finish();
  return std::move(out_);
}

Status Cutter::add_record(ClipFile& file, const MediaRecord& record) {
  const auto kind = of_frames() ? StreamInfo::Kind::kVideo : StreamInfo::Kind::kAudio;
  const StreamRecord* const stream = choose_stream(record, kind, spec_.stream);
  if (stream == nullptr) {
    faults_.add(no_stream_text(kind, spec_.stream), file.item,
                {Code::kInvalidArgument, "it is " + no_stream_text(kind, spec_.stream)});
    return {};
  }
  file.info = stream->info;
  file.frames = stream->frames;
  file.packets = stream->packets;
  const double rate = static_cast<double>(file.info.codec->sample_rate);
  file.length = of_frames() ? file.frames.size() : file.info.samples;
  if (file.length == 0 || (!of_frames() && rate <= 0)) {
    faults_.add(
        of_frames() ? "with a video that has no frame" : "without a sample of sound", file.item,
        {Code::kDataLoss, of_frames() ? "its video has no frame" : "it has no sample of sound"});
    return {};
  }
  if (!has_packets(*stream)) {
    faults_.add("that do not tell where their packets are", file.item,
                {Code::kDataLoss, "it does not tell where its packets are"});
    return {};
  }
  if (file.info.access == StreamInfo::Access::kDemux && bytes_of(file) > limits_.item_bytes) {
    faults_.add(
        fmt::format("that can only be read whole and have more than the {} bytes that an item "
                    "may have (remux such a file to mp4 or mkv)",
                    limits_.item_bytes),
        file.item,
        {Code::kResourceExhausted,
         fmt::format("it can only be read whole and has {} bytes, more than the {} that an item "
                     "may have; remux it to mp4 or mkv",
                     bytes_of(file), limits_.item_bytes)});
    return {};
  }
  if (spec_.sampling == Sampling::kWhole && !takes_whole(file)) return {};
  file.grid = {.sampling = spec_.sampling,
               .end = spec_.end,
               .per_file = static_cast<std::uint64_t>(spec_.per_file)};
  if (of_frames()) {
    file.grid.span = static_cast<std::uint64_t>(spec_.span_frames());
    file.grid.hop =
        static_cast<double>(spec_.hop_frames > 0 ? spec_.hop_frames : spec_.frames * spec_.stride);
  } else {
    file.grid.span = spec_.sampling == Sampling::kWhole
                         ? file.length
                         : std::max<std::uint64_t>(
                               1, static_cast<std::uint64_t>(std::llround(spec_.seconds * rate)));
    // Less than a sample apart, windows would be the same ones again.
    file.grid.hop =
        std::max(1.0, (spec_.hop_seconds > 0 ? spec_.hop_seconds : spec_.seconds) * rate);
  }
  ClipSound sound;
  if (!spec_.audio.empty()) {
    Result<ClipSound> found = sound_of(file, record);
    if (!found) {
      faults_.add(found.error().message(), file.item,
                  {found.error().code(), found.error().message()});
      return {};
    }
    sound = *std::move(found);
  }
  file.first_start = out_.starts.size();
  if (are_starts_told(spec_.sampling)) {
    SPDLD_TRY(add_starts(spec_, source_, file, faults_, out_));
    file.items = out_.starts.size() - file.first_start;
  } else {
    file.items = file.grid.count(file.length);
    if (spec_.stack) file.items = std::min<std::uint64_t>(file.items, 1);
  }
  if (file.items == 0) {
    // add_starts() has told of timestamps.
    if (spec_.sampling != Sampling::kTimestamps)
      faults_.add(spec_.end == End::kDrop ? kTooShortForClip : "without a key frame", file.item);
    return {};
  }
  if (file.items > limits_.items - std::min(limits_.items, out_.size()))
    return {Code::kResourceExhausted,
            fmt::format("there are more than the {} items that a dataset may have: {}",
                        limits_.items, fewer_text())};
  shapes_.add(file, sound);
  out_.first.push_back(out_.size() + file.items);
  out_.files.push_back(std::move(file));
  if (!spec_.audio.empty()) out_.sounds.push_back(std::move(sound));
  return {};
}

// How a pipeline asks for fewer clips.
std::string Cutter::fewer_text() const {
  switch (spec_.sampling) {
    case Sampling::kDense: return "let them lie further apart, 'hop'";
    case Sampling::kUniform:
    case Sampling::kRandom: return "ask for fewer of each file, 'per_file'";
    case Sampling::kTimestamps: return "give fewer 'timestamps'";
    default: return "take fewer files";
  }
}

// Whether all of the file can be an item and is as long as is asked for; tells of one that is not.
bool Cutter::takes_whole(const ClipFile& file) {
  const double seconds = file.sound_seconds();
  const std::string length = fmt::format("{:.10g} s", seconds);
  if (seconds < spec_.min_seconds) {
    faults_.add(fmt::format("shorter than min_seconds, which is {} s", spec_.min_seconds),
                file.item, {}, length);
    return false;
  }
  if (spec_.max_seconds > 0 && seconds > spec_.max_seconds) {
    faults_.add(fmt::format("longer than max_seconds, which is {} s", spec_.max_seconds), file.item,
                {}, length);
    return false;
  }
  if (bytes_of(file) > limits_.item_bytes) {
    faults_.add(
        fmt::format("that have more than the {} bytes that an item may have (windows of so many "
                    "'seconds' read a part of such a file)",
                    limits_.item_bytes),
        file.item,
        {Code::kResourceExhausted,
         fmt::format("it has {} bytes, more than the {} that an item may have; windows of so many "
                     "'seconds' read a part of it",
                     bytes_of(file), limits_.item_bytes)});
    return false;
  }
  return true;
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

void Cutter::finish() {
  out_.shape = shapes_.clips();
  out_.sound_shape = shapes_.sounds();
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

std::uint64_t ClipFiles::memory_bytes() const {
  return files.capacity() * sizeof files[0] + sounds.capacity() * sizeof sounds[0] +
         (first.capacity() + starts.capacity()) * sizeof first[0] +
         missed.capacity() * sizeof missed[0];
}

std::size_t ClipFiles::file_of(std::uint64_t item) const {
  SPDLD_CHECK(item < size());
  return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), item) -
                                  first.begin() - 1);
}

std::uint64_t ClipFiles::start(const ClipFile& file, std::uint64_t k,
                               std::uint64_t epoch_key) const {
  if (are_starts_told(spec.sampling)) return starts[file.first_start + k];
  return file.grid.start(file.length, k, mix64(epoch_key, file.identity));
}

double ClipFile::mean_frame_seconds() const {
  if (length < 2) return 0;
  return static_cast<double>(frames.time(length - 1) - frames.time(0)) * info.time_base.value() /
         static_cast<double>(length - 1);
}

double ClipFile::sound_seconds() const {
  return static_cast<double>(length) / static_cast<double>(info.codec->sample_rate);
}

double ClipFiles::begin_seconds(const ClipFile& file, std::uint64_t k,
                                std::uint64_t epoch_key) const {
  const std::uint64_t begin = start(file, k, epoch_key);
  if (begin == kNoStart) {
    const auto found = std::lower_bound(
        missed.begin(), missed.end(), file.first_start + k,
        [](const MissedTime& time, std::size_t number) { return time.start < number; });
    SPDLD_CHECK(found != missed.end());
    return found->seconds;
  }
  if (spec.unit == Unit::kFrames)
    return static_cast<double>(file.frames.time(begin)) * file.info.time_base.value();
  return static_cast<double>(begin) / static_cast<double>(file.info.codec->sample_rate);
}

Result<ClipFiles> cut_clips(const ClipsSpec& spec, const Source& source, std::size_t part,
                            std::shared_ptr<const MediaIndex> index, const ClipLimits& limits,
                            ClipFaults& faults) {
  return Cutter(spec, source, part, limits, faults).cut(std::move(index));
}

}  // namespace spdld::source
