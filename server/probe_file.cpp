// SPDX-License-Identifier: Apache-2.0
#include "probe_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/text/printable.h"
#include "engine/file_prober.h"
#include "media/container/codecs.h"
#include "posix/unique_fd.h"
#include "source/bytes/file_bytes.h"

namespace spdld {
namespace {

using nlohmann::ordered_json;

const char* access_name(StreamInfo::Access access) {
  switch (access) {
    case StreamInfo::Access::kPackets: return "packets";
    case StreamInfo::Access::kPcm: return "pcm";
    case StreamInfo::Access::kDemux: return "whole file";
  }
  return "";
}

void add_video(const MediaStream& stream, ordered_json& facts) {
  const StreamInfo& info = stream.info;
  facts["width"] = info.codec->width;
  facts["height"] = info.codec->height;
  if (!info.codec->pixel_format.empty()) facts["pixel_format"] = info.codec->pixel_format;
  facts["rotation"] = info.rotation;
  facts["mirrored"] = info.mirrored;
  facts["frames"] = stream.frame_pts.size();
  if (info.access == StreamInfo::Access::kPackets) {
    facts["key_frames"] =
        std::count_if(stream.packets.begin(), stream.packets.end(),
                      [](const MediaPacket& packet) { return packet.key && !packet.discard; });
  }
  if (stream.frame_pts.empty()) return;
  const double tick = info.time_base.value();
  facts["first_seconds"] = static_cast<double>(stream.frame_pts.front()) * tick;
  facts["last_seconds"] = static_cast<double>(stream.frame_pts.back()) * tick;
  const auto ticks = stream.frame_pts.back() - stream.frame_pts.front();
  if (ticks > 0) {
    facts["mean_frames_per_second"] =
        static_cast<double>(stream.frame_pts.size() - 1) / (static_cast<double>(ticks) * tick);
  }
}

void add_audio(const MediaStream& stream, ordered_json& facts) {
  const CodecParameters& codec = *stream.info.codec;
  facts["sample_rate"] = codec.sample_rate;
  facts["channels"] = codec.channels;
  facts["channel_layout"] = codec.channel_layout;
  facts["samples"] = stream.info.samples;
  if (codec.sample_rate > 0)
    facts["seconds"] = static_cast<double>(stream.info.samples) / codec.sample_rate;
}

ordered_json stream_facts(const MediaStream& stream) {
  const StreamInfo& info = stream.info;
  const bool video = info.kind == StreamInfo::Kind::kVideo;
  const media::MediaCodec* codec = media::find_media_codec(info.codec->codec);
  ordered_json facts = {{"index", info.index},
                        {"kind", video ? "video" : "audio"},
                        {"codec", info.codec->codec},
                        {"decoder", codec == nullptr ? "" : codec->decoder},
                        {"read", access_name(info.access)},
                        {"language", stream.language},
                        {"default", stream.is_default}};
  if (video) {
    add_video(stream, facts);
  } else {
    add_audio(stream, facts);
  }
  return facts;
}

}  // namespace

Result<ordered_json> probe_file(const std::string& path) {
  // Of a pipe or a device nothing is known before it is read.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return tl::unexpected<Status>(errno_status(errno, "cannot open " + printable(path)));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return tl::unexpected<Status>(errno_status(errno, "cannot look at " + printable(path)));
  if (!S_ISREG(info.st_mode))
    return error(Code::kInvalidArgument, printable(path) + " is no regular file");
  source::OpenFileBytes bytes(file.get(), path, static_cast<std::uint64_t>(info.st_size));
  Result<MediaFile> found = engine::FileProber().probe(bytes, {});
  if (!found) return tl::unexpected<Status>(std::move(found).error());
  ordered_json facts = {{"file", printable(path)},
                        {"format", found->format},
                        {"bytes", static_cast<std::uint64_t>(info.st_size)},
                        {"streams", ordered_json::array()},
                        {"faults", found->faults}};
  for (const MediaStream& stream : found->streams) facts["streams"].push_back(stream_facts(stream));
  return facts;
}

}  // namespace spdld
