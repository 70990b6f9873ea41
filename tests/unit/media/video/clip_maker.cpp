// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/video/clip_maker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "media/probe/prober.h"
#include "tests/unit/media/image/row_collector.h"

namespace spdld::media::test {
ClipMaker::ClipMaker(std::span<const std::byte> file) : file_(file) {
  MemoryReader reader(file);
  Result<MediaFile> media = probe(reader);
  if (!media) {
    ADD_FAILURE() << media.error().message();
    return;
  }
  for (MediaStream& stream : media->streams) {
    if (stream.info.kind != StreamInfo::Kind::kVideo) continue;
    stream_ = stream.info;
    packets_ = std::move(stream.packets);
    times_ = std::move(stream.frame_pts);
    return;
  }
  ADD_FAILURE() << "no video in it";
}

ClipMaker::Cut ClipMaker::cut(const std::vector<std::int64_t>& frames) const {
  const std::set<std::int64_t> wanted(frames.begin(), frames.end());
  std::vector<std::uint8_t> needed(packets_.size(), 0);
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    if (!wanted.contains(packets_[i].pts)) continue;
    // From the last key frame that is shown no later, if that is enough.
    std::size_t begin = i;
    while (begin > 0 && (!packets_[begin].key || packets_[begin].pts > packets_[i].pts)) --begin;
    if (stream_.refreshes_gradually) begin = 0;
    for (std::size_t j = begin; j <= i; ++j) needed[j] = 1;
  }
  Cut cut;
  cut.clip.stream = stream_;
  cut.clip.frames = frames;
  bool gap = false;
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    if (needed[i] == 0) {
      gap = !cut.clip.packets.empty();
      continue;
    }
    MediaPacket packet = packets_[i];
    packet.offset = cut.bytes.size();
    packet.gap = gap;
    gap = false;
    cut.clip.packets.push_back(packet);
    const auto data = file_.subspan(packets_[i].offset, packets_[i].size_bytes);
    cut.bytes.insert(cut.bytes.end(), data.begin(), data.end());
  }
  return cut;
}

ClipMaker::Cut ClipMaker::demuxed(const std::vector<std::int64_t>& frames) const {
  Cut cut;
  cut.clip.stream = stream_;
  cut.clip.stream.access = StreamInfo::Access::kDemux;
  cut.clip.frames = frames;
  cut.bytes.assign(file_.begin(), file_.end());
  return cut;
}

Result<Frames> frames_of(VideoDecoder& decoder, const MediaClip& clip,
                         std::span<const std::byte> bytes, int channels, const Rect& region) {
  SPDLD_ASSIGN(const Size size, decoder.open(clip, bytes));
  const Rect part = region.width > 0 ? region : Rect{0, 0, size.width, size.height};
  Frames frames;
  frames.times = clip.frames;
  frames.pixels.resize(clip.frames.size());
  const std::size_t row_bytes = static_cast<std::size_t>(part.width * channels);
  for (;;) {
    SPDLD_ASSIGN(const bool found, decoder.next());
    if (!found) return frames;
    std::vector<std::uint8_t> pixels(row_bytes * static_cast<std::size_t>(part.height));
    RowCollector rows(pixels, row_bytes);
    SPDLD_TRY(decoder.read(part, rows));
    for (std::size_t i = 0; i < clip.frames.size(); ++i) {
      if (clip.frames[i] == decoder.pts()) frames.pixels[i] = pixels;
    }
  }
}

Difference difference(std::span<const std::uint8_t> pixels, std::span<const std::byte> expected) {
  Difference found;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const int off = std::abs(int{pixels[i]} - std::to_integer<int>(expected[i]));
    found.most = std::max(found.most, off);
    found.values += off > 0 ? 1 : 0;
  }
  return found;
}

void expect_near(const Frames& frames, std::span<const std::byte> expected) {
  for (const std::vector<std::uint8_t>& pixels : frames.pixels) {
    ASSERT_LE(pixels.size(), expected.size());
    EXPECT_LE(difference(pixels, expected).most, 1);
    expected = expected.subspan(pixels.size());
  }
  EXPECT_TRUE(expected.empty());
}

}  // namespace spdld::media::test
