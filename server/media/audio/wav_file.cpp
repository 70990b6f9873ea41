// SPDX-License-Identifier: Apache-2.0
#include "media/audio/wav_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "base/text/counted.h"
#include "media/bytes/byte_order.h"

namespace spdld::media {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kRiffHeader = 12;
constexpr std::size_t kChunkHeader = 8;
// More stand in no file that was meant to be played.
constexpr int kMostChunks = 1000;

// A program that writes to a pipe cannot go back to tell the length, and writes one of these: 0, or
// a number at the end of what 31 or 32 bits hold.
constexpr std::uint64_t kUnknownFrom = 0x7FFFF000;

enum Tag : std::uint32_t {
  kTagPcm = 1,
  kTagFloat = 3,
  kTagALaw = 6,
  kTagMuLaw = 7,
  kTagExtensible = 0xFFFE,
};

std::string_view id_at(Bytes bytes, std::size_t at) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, 4};
}

std::uint64_t le64(Bytes bytes, std::size_t at) {
  return le32(bytes, at) | std::uint64_t{le32(bytes, at + 4)} << 32;
}

tl::unexpected<Status> bad(const std::string& what) {
  return error(Code::kDataLoss, "corrupt WAV: " + what);
}

// The "fmt " chunk. Nothing: the samples are no PCM.
Result<std::optional<WavFile>> read_format(Bytes chunk) {
  constexpr std::size_t kPlain = 16;
  constexpr std::size_t kExtensible = 40;
  if (chunk.size() < kPlain)
    return bad("its format takes " + counted(chunk.size(), "byte") + ", and never less than 16");
  std::uint32_t tag = le16(chunk, 0);
  WavFile wav;
  wav.channels = static_cast<int>(le16(chunk, 2));
  const std::uint32_t rate = le32(chunk, 4);
  const std::uint32_t frame_bytes = le16(chunk, 12);
  const std::uint32_t bits = le16(chunk, 14);
  if (tag == kTagExtensible) {
    if (chunk.size() < kExtensible) return bad("its extensible format is cut off");
    // The tag, and behind it what all GUIDs of such formats have in common.
    constexpr std::array<unsigned char, 14> kRest = {0, 0, 0,    0, 0x10, 0,    0x80,
                                                     0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    if (std::memcmp(chunk.data() + 26, kRest.data(), kRest.size()) != 0)
      return std::optional<WavFile>();
    wav.channel_mask = le32(chunk, 20);
    tag = le16(chunk, 24);
  }
  using Kind = PcmFormat::Kind;
  wav.format.bytes = static_cast<int>((bits + 7) / 8);
  switch (tag) {
    case kTagPcm: wav.format.kind = bits <= 8 ? Kind::kUnsigned : Kind::kSigned; break;
    case kTagFloat: wav.format.kind = Kind::kFloat; break;
    case kTagALaw: wav.format.kind = Kind::kALaw; break;
    case kTagMuLaw: wav.format.kind = Kind::kMuLaw; break;
    default: return std::optional<WavFile>();
  }
  const bool known = tag == kTagPcm     ? bits >= 1 && bits <= 32
                     : tag == kTagFloat ? bits == 32 || bits == 64
                                        : bits == 8;
  if (!known) return bad("its samples have " + counted(bits, "bit"));
  if (wav.channels == 0) return bad("it has no channels");
  if (rate == 0 || rate > 0x7FFFFFFFU) return bad("its sample rate is " + std::to_string(rate));
  wav.sample_rate = static_cast<int>(rate);
  if (frame_bytes != wav.frame_bytes())
    return bad("it says that " + counted(static_cast<std::uint64_t>(wav.channels), "sample") +
               " of " + counted(bits, "bit") + " take " + counted(frame_bytes, "byte"));
  return wav;
}

// The bytes behind the data's header, as many as it says that there are.
Result<Bytes> data_chunk(Bytes rest, std::uint64_t told, bool whole_told) {
  const bool unknown = (told == 0 && !whole_told) || (told >= kUnknownFrom && told > rest.size());
  if (unknown) return rest;
  if (told > rest.size())
    return bad("it is cut off: its header promises " + counted(told, "byte") + " of samples, and " +
               std::to_string(rest.size()) + " follow");
  return rest.first(told);
}

}  // namespace

bool is_wav(Bytes bytes) {
  if (bytes.size() < kRiffHeader || id_at(bytes, 8) != "WAVE") return false;
  const std::string_view id = id_at(bytes, 0);
  return id == "RIFF" || id == "RF64" || id == "BW64";
}

Result<std::optional<WavFile>> read_wav(Bytes bytes) {
  const bool is_long = id_at(bytes, 0) != "RIFF";
  const std::uint32_t riff_bytes = le32(bytes, 4);
  // Where the writer went back to tell one length, it told the other as well.
  const bool whole_told = riff_bytes != 0 && (is_long || riff_bytes < kUnknownFrom);
  std::optional<WavFile> wav;
  std::optional<std::uint64_t> long_data;  // of "ds64"
  std::size_t at = kRiffHeader;
  for (int i = 0; i < kMostChunks && at + kChunkHeader <= bytes.size(); ++i) {
    const std::string_view id = id_at(bytes, at);
    const std::uint64_t told = le32(bytes, at + 4);
    const Bytes rest = bytes.subspan(at + kChunkHeader);
    const Bytes chunk = rest.first(std::min<std::uint64_t>(told, rest.size()));
    if (id == "ds64" && is_long && chunk.size() >= 16) long_data = le64(chunk, 8);
    if (id == "fmt ") {
      SPDLD_ASSIGN(wav, read_format(chunk));
      if (!wav) return std::optional<WavFile>();
    }
    if (id == "data") {
      if (!wav) return bad("its samples come before their format");
      const bool in_ds64 = is_long && told == 0xFFFFFFFFU && long_data.has_value();
      SPDLD_ASSIGN(wav->data, data_chunk(rest, in_ds64 ? *long_data : told, whole_told));
      return wav;
    }
    at += kChunkHeader + told + (told & 1U);
  }
  return bad(wav ? "it has no samples" : "it has neither a format nor samples");
}

}  // namespace spdld::media
