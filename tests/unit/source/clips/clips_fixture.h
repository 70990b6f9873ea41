// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "source/clips_source.h"
#include "source/kept/kept_datasets.h"
#include "source/open_source.h"
#include "tests/support/toy_media.h"
#include "tests/unit/source/item/fake_sink.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {

// Opens the clips of toy files that a test puts into a directory, and fetches them.
class ClipsFixture : public ::testing::Test {
 protected:
  FilesSpec files() const {
    FilesSpec files;
    files.root = dir_.path("data");
    files.pattern = "**";
    files.field = "video";
    return files;
  }
  Result<std::unique_ptr<Source>> try_open(const SourceSpec& spec, KeptDatasets* kept = nullptr,
                                           const std::string& dataset = {}) {
    SourceOptions options(io_);
    options.prober = &prober_;
    options.kept = kept;
    options.dataset = dataset;
    options.max_file_bytes = max_file_bytes_;
    warnings_.clear();
    options.warnings = &warnings_;
    return open_source(spec, std::move(options));
  }
  std::unique_ptr<Source> open(const ClipsSpec& clips) {
    auto source = try_open({.items = files(), .clips = clips});
    EXPECT_TRUE(source) << source.error().message();
    return source ? std::move(source).value() : nullptr;
  }
  std::string refusal(const ClipsSpec& clips) {
    auto source = try_open({.items = files(), .clips = clips});
    EXPECT_FALSE(source);
    return source ? "" : source.error().message();
  }
  void put(const std::string& name, const test::ToyMedia& toy) {
    dir_.file("data/" + name, toy.bytes());
  }
  void put_video(const std::string& name, std::int64_t frames, std::int64_t gop = 10,
                 bool b = false, bool open = false) {
    test::ToyMedia toy;
    const int video = toy.add_video();
    toy.put_frames(video, frames, gop, b, open);
    put(name, toy);
  }
  void put_picture(const std::string& name, int width, int height, int rotation = 0) {
    test::ToyMedia toy;
    const int video = toy.add_video(width, height);
    toy.stream(video).media.info.rotation = rotation;
    toy.put_frames(video, 8, 4);
    put(name, toy);
  }

  const MediaClip& fetch(Source& source, std::uint64_t item, std::size_t part = 0,
                         std::uint64_t epoch = 0) {
    item_.epoch_key = epoch;
    const Status status = fetch_and_wait(source, item, item_, {{.part = part}});
    EXPECT_TRUE(status.ok()) << status.message();
    const MediaClip* const clip = item_.clip(0);
    EXPECT_NE(clip, nullptr);
    return *clip;
  }
  // Whether the bytes of each packet are that packet's.
  void expect_own_bytes(const MediaClip& clip) const {
    const std::string bytes = text_of(item_.part(0));
    for (const MediaPacket& packet : clip.packets) {
      const std::string name = test::ToyMedia::name(clip.stream.index, packet.pts);
      ASSERT_LE(packet.offset + packet.size_bytes, bytes.size());
      EXPECT_EQ(bytes.substr(packet.offset, name.size()), name);
    }
  }
  static std::vector<std::int64_t> times_of(const MediaClip& clip) {
    std::vector<std::int64_t> times;
    for (const MediaPacket& packet : clip.packets) times.push_back(packet.pts);
    return times;
  }
  static std::vector<std::string> uris(const Source& source) {
    std::vector<std::string> uris;
    for (std::uint64_t i = 0; i < source.size(); ++i) uris.push_back(source.uri(i));
    return uris;
  }

  TempDir dir_;
  test::ToyProber prober_;
  IoPool io_{{.threads = 2}};
  FetchedItem item_;
  std::uint64_t max_file_bytes_ = std::uint64_t{1} << 30;
  std::vector<std::string> warnings_;
};

}  // namespace spdld::source
