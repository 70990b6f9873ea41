// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/media_record.h"

#include <xxhash.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "source/bytes/varint.h"

namespace spdld::source {
namespace {

constexpr std::size_t kMostStreams = 256;

void put_text(std::string& out, std::string_view text) {
  put_varint(out, text.size());
  out += text;
}
void put_signed(std::string& out, std::int64_t value) { put_varint(out, zigzag(value)); }

// Reads what a record holds; !ok() once something was missing.
class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}

  bool ok() const { return ok_; }
  std::string_view rest() const { return rest_; }
  std::uint64_t number() {
    std::uint64_t value = 0;
    ok_ = ok_ && take_varint(rest_, value);
    return ok_ ? value : 0;
  }
  std::int64_t signed_number() { return unzigzag(number()); }
  int small() { return static_cast<int>(signed_number()); }
  std::string_view text() {
    const std::uint64_t size = number();
    ok_ = ok_ && size <= rest_.size();
    if (!ok_) return {};
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

template <typename Codec, typename Number, typename Text>
void each_field(Codec& codec, const Number& number, const Text& text) {
  text(codec.codec);
  number(codec.tag);
  number(codec.bit_rate);
  number(codec.profile);
  number(codec.level);
  number(codec.bits_per_coded_sample);
  number(codec.bits_per_raw_sample);
  number(codec.width);
  number(codec.height);
  text(codec.pixel_format);
  number(codec.sample_aspect.num);
  number(codec.sample_aspect.den);
  text(codec.color_range);
  text(codec.color_space);
  text(codec.color_primaries);
  text(codec.color_transfer);
  text(codec.chroma_location);
  number(codec.reorder_frames);
  number(codec.sample_rate);
  number(codec.channels);
  text(codec.channel_layout);
  text(codec.sample_format);
  number(codec.block_align);
  number(codec.frame_size);
  number(codec.initial_padding);
  number(codec.trailing_padding);
  number(codec.seek_preroll);
}

std::string codec_text(const CodecParameters& codec) {
  std::string out;
  each_field(
      codec, [&out](auto value) { put_signed(out, static_cast<std::int64_t>(value)); },
      [&out](const std::string& text) { put_text(out, text); });
  out.append(reinterpret_cast<const char*>(codec.extradata.data()), codec.extradata.size());
  return out;
}

std::optional<CodecParameters> read_codec(std::string_view text) {
  CodecParameters codec;
  Fields in(text);
  each_field(
      codec,
      [&in](auto& value) {
        value = static_cast<std::remove_reference_t<decltype(value)>>(in.signed_number());
      },
      [&in](std::string& value) { value = std::string(in.text()); });
  if (!in.ok()) return std::nullopt;
  const std::string_view extradata = in.rest();
  const auto* const bytes = reinterpret_cast<const std::byte*>(extradata.data());
  codec.extradata.assign(bytes, bytes + extradata.size());
  return codec;
}

bool are_times(const std::vector<std::int64_t>& times) {
  return std::is_sorted(times.begin(), times.end()) &&
         (times.empty() || (is_possible_time(times.front()) && is_possible_time(times.back())));
}

// Whether they ascend, and no sum of them leaves the times that there are.
bool are_gaps(const std::vector<SoundGap>& gaps) {
  std::int64_t before = -kMostTime;
  std::int64_t silence = 0;
  for (const SoundGap& gap : gaps) {
    if (gap.before < before || gap.before > kMostTime || gap.samples <= 0 ||
        gap.samples > 2 * kMostTime - silence)
      return false;
    before = gap.before;
    silence += gap.samples;
  }
  return gaps.size() <= MediaStream::kMostGaps;
}

std::uint64_t text_hash(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace

CodecPool::CodecPool() : CodecPool(text_hash) {}

std::uint64_t CodecPool::add(const CodecParameters& codec) {
  std::string text = codec_text(codec);
  std::uint64_t number = hash_(text);
  MutexLock lock(mutex_);
  for (;; ++number) {
    const auto found = entries_.find(number);
    if (found == entries_.end()) break;
    if (found->second.text == text) return number;
  }
  entries_[number] = {.text = std::move(text),
                      .codec = std::make_shared<const CodecParameters>(codec)};
  return number;
}

bool CodecPool::add_text(std::uint64_t number, std::string_view text) {
  auto codec = read_codec(text);
  if (!codec) return false;
  MutexLock lock(mutex_);
  if (const auto found = entries_.find(number); found != entries_.end())
    return found->second.text == text;
  entries_[number] = {.text = std::string(text),
                      .codec = std::make_shared<const CodecParameters>(*std::move(codec))};
  return true;
}

CodecPool::Codec CodecPool::find(std::uint64_t number) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : found->second.codec;
}

std::string CodecPool::text(std::uint64_t number) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(number);
  return found == entries_.end() ? std::string() : found->second.text;
}

Result<std::string> media_record_text(const MediaFile& file, CodecPool& codecs) {
  if (file.streams.size() > kMostStreams)
    return error(Code::kResourceExhausted, "it has " + std::to_string(file.streams.size()) +
                                               " streams, more than the " +
                                               std::to_string(kMostStreams) + " that are kept");
  std::string out;
  put_text(out, file.format);
  put_varint(out, file.faults.size());
  for (const std::string& fault : file.faults) put_text(out, fault);
  put_varint(out, file.streams.size());
  for (const MediaStream& stream : file.streams) {
    const StreamInfo& info = stream.info;
    if (info.codec == nullptr || info.time_base.num <= 0 || info.time_base.den <= 0)
      return error(Code::kDataLoss, "a stream has no codec or no time base");
    if (info.samples > static_cast<std::uint64_t>(kMostTime))
      return error(Code::kDataLoss, "it says that it has more samples than can be");
    if (!are_gaps(stream.gaps)) return error(Code::kDataLoss, "its sound has impossible gaps");
    if (!are_times(stream.frame_pts))
      return error(Code::kDataLoss, "the times of its frames cannot be right");
    SPDLD_ASSIGN(const std::string packets, packet_table_text(stream.packets));
    put_varint(out, static_cast<std::uint64_t>(info.kind));
    put_varint(out, static_cast<std::uint64_t>(info.access));
    put_signed(out, info.index);
    put_signed(out, info.time_base.num);
    put_signed(out, info.time_base.den);
    put_signed(out, info.rotation);
    put_varint(out, (info.mirrored ? 1U : 0U) | (stream.is_default ? 2U : 0U) |
                        (info.is_off_clock ? 4U : 0U) | (info.refreshes_gradually ? 8U : 0U));
    put_varint(out, info.samples);
    put_signed(out, info.end_pts);
    put_varint(out, info.pcm_offset);
    put_text(out, stream.language);
    put_varint(out, codecs.add(*info.codec));
    put_text(out, frame_table_text(stream.frame_pts));
    put_text(out, packets);
    put_varint(out, stream.gaps.size());
    for (const SoundGap& gap : stream.gaps) {
      put_signed(out, gap.before);
      put_signed(out, gap.samples);
    }
  }
  return out;
}

std::optional<MediaRecord> read_media_record(std::string_view text, const CodecPool& codecs) {
  Fields in(text);
  MediaRecord record;
  record.format = in.text();
  for (std::uint64_t n = in.number(); n > 0 && in.ok(); --n) record.faults.push_back(in.text());
  const std::uint64_t streams = in.number();
  if (streams > kMostStreams) return std::nullopt;
  for (std::uint64_t n = streams; n > 0 && in.ok(); --n) {
    StreamRecord& stream = record.streams.emplace_back();
    StreamInfo& info = stream.info;
    info.kind = static_cast<StreamInfo::Kind>(in.number());
    info.access = static_cast<StreamInfo::Access>(in.number());
    info.index = in.small();
    info.time_base.num = in.signed_number();
    info.time_base.den = in.signed_number();
    info.rotation = in.small();
    const std::uint64_t flags = in.number();
    info.mirrored = (flags & 1) != 0;
    stream.is_default = (flags & 2) != 0;
    info.is_off_clock = (flags & 4) != 0;
    info.refreshes_gradually = (flags & 8) != 0;
    info.samples = in.number();
    info.end_pts = in.signed_number();
    info.pcm_offset = in.number();
    stream.language = in.text();
    stream.codec = in.number();
    info.codec = codecs.find(stream.codec);
    stream.frames = FrameTable(in.text());
    stream.packets = PacketTable(in.text());
    const std::uint64_t gaps = in.number();
    if (gaps > MediaStream::kMostGaps) return std::nullopt;
    for (std::uint64_t i = 0; i < gaps && in.ok(); ++i) {
      const std::int64_t before = in.signed_number();
      stream.gaps.push_back({.before = before, .samples = in.signed_number()});
    }
    if (info.codec == nullptr || info.time_base.num <= 0 || info.time_base.den <= 0 ||
        info.samples > static_cast<std::uint64_t>(kMostTime) || !are_gaps(stream.gaps))
      return std::nullopt;  // also where something was missing
  }
  if (!in.ok() || !in.rest().empty()) return std::nullopt;
  return record;
}

}  // namespace spdld::source
