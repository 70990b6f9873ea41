// SPDX-License-Identifier: Apache-2.0
// Clips as a source like any other.
#include <map>
#include <memory>
#include <string>

#include "source/media_index/media_prober.h"
#include "source/open_source.h"
#include "tests/conformance/source_suite.h"
#include "tests/unit/source/tar/class_shard.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

// Says of any file that a second of sound is in it, which must be taken out of the whole.
class WholeProber final : public MediaProber {
 public:
  Result<MediaFile> probe(FileBytes&, std::stop_token) const override {
    CodecParameters codec;
    codec.codec = "opus";
    codec.sample_rate = 100;
    codec.channels = 1;
    MediaStream stream;
    stream.info.kind = StreamInfo::Kind::kAudio;
    stream.info.access = StreamInfo::Access::kDemux;
    stream.info.time_base = {1, 100};
    stream.info.samples = 100;
    stream.info.codec = std::make_shared<const CodecParameters>(codec);
    MediaFile file;
    file.streams.push_back(std::move(stream));
    return file;
  }
  std::string version() const override { return "whole"; }
};

ClipsSpec one_second() {
  ClipsSpec spec;
  spec.unit = ClipsSpec::Unit::kSeconds;
  spec.seconds = 1;
  return spec;
}

ClipsSpec whole_file() {
  ClipsSpec spec;
  spec.unit = ClipsSpec::Unit::kSeconds;
  spec.sampling = ClipsSpec::Sampling::kWhole;
  return spec;
}

// Files of which each is one window.
template <ClipsSpec (*Windows)()>
class WindowMaker {
 public:
  std::unique_ptr<Source> make(const std::map<std::string, std::string>& items) {
    dir_ = std::make_unique<TempDir>();
    for (const auto& [uri, bytes] : items) dir_->file(uri, bytes);
    FilesSpec files;
    files.root = dir_->path();
    files.pattern = "**";
    files.label = FilesSpec::Label::kParentDir;
    SourceOptions options(io_);
    options.prober = &prober_;
    auto source = open_source({.items = files, .clips = Windows()}, std::move(options));
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  static constexpr Code kLost = Code::kNotFound;
  static std::string name(const std::string& uri) {
    return Windows == whole_file ? uri : uri + "@0s";
  }
  static std::string file(const std::string& uri) { return uri; }
  void lose(const std::string& uri) { dir_->remove(uri); }

 private:
  WholeProber prober_;
  IoPool io_{{.threads = 4}};
  std::unique_ptr<TempDir> dir_;
};

// The same as members of a shard.
class ShardWindowMaker {
 public:
  std::unique_ptr<Source> make(const std::map<std::string, std::string>& items) {
    dir_ = std::make_unique<TempDir>();
    const WebdatasetSpec shards = class_shard(*dir_, items, "sound");
    SourceOptions options(io_);
    options.prober = &prober_;
    auto source = open_source({.items = shards, .clips = one_second()}, std::move(options));
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  static constexpr Code kLost = Code::kDataLoss;
  static std::string name(const std::string& uri) {
    return "a.tar/" + uri.substr(0, uri.find('.')) + "@0s";
  }
  static std::string file(const std::string&) { return "a.tar"; }
  void lose(const std::string&) { dir_->file("a.tar", "another file"); }

 private:
  WholeProber prober_;
  IoPool io_{{.threads = 4}};
  std::unique_ptr<TempDir> dir_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Windows, SourceSuite, WindowMaker<one_second>);
INSTANTIATE_TYPED_TEST_SUITE_P(WholeSounds, SourceSuite, WindowMaker<whole_file>);
INSTANTIATE_TYPED_TEST_SUITE_P(ShardWindows, SourceSuite, ShardWindowMaker);

}  // namespace
}  // namespace spdld::source
