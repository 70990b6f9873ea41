// SPDX-License-Identifier: Apache-2.0
#include "source/webdataset_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "source/file/disk.h"
#include "tests/conformance/source_suite.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/tar/class_shard.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using test::TarWriter;
using ::testing::HasSubstr;

// One shard, in which each item has a part and the name of its class.
class ShardMaker {
 public:
  std::unique_ptr<Source> make(const std::map<std::string, std::string>& items) {
    dir_ = std::make_unique<TempDir>();
    const WebdatasetSpec spec = class_shard(*dir_, items, "image");
    auto source = open_webdataset(spec, SourceOptions(io_));
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  static constexpr Code kLost = Code::kDataLoss;
  static std::string name(const std::string& uri) {
    return "a.tar/" + uri.substr(0, uri.find('.'));
  }
  static std::string file(const std::string&) { return "a.tar"; }
  void lose(const std::string&) { dir_->file("a.tar", "another file"); }

 private:
  IoPool io_{{.threads = 4}};
  std::unique_ptr<TempDir> dir_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Shards, SourceSuite, ShardMaker);

class WebdatasetSourceTest : public ::testing::Test {
 protected:
  WebdatasetSourceTest() {
    TarWriter tar;
    for (int i = 0; i < 3; ++i) {
      const std::string key = std::to_string(i);
      tar.file(key + ".jpg", std::string(1000, static_cast<char>('a' + i)));
      tar.file(key + ".txt", "caption " + key);
    }
    dir_.file("a.tar", tar.archive());
    spec_.shards = {dir_.path("a.tar")};
    spec_.parts = {{.field = "image", .suffixes = {"jpg"}},
                   {.field = "caption", .suffixes = {"txt"}}};
  }

  std::unique_ptr<Source> open() {
    auto source = open_webdataset(spec_, SourceOptions(io_));
    EXPECT_TRUE(source) << source.error().message();
    return source ? std::move(source).value() : nullptr;
  }
  Status fetch(Source& source, std::uint64_t item, const std::vector<PartRequest>& requests) {
    const auto state = source.fetch(item, requests, item_, sink_, ++token_);
    if (!state) return state.error();
    return *state == FetchState::kPending ? sink_.wait(token_) : Status();
  }
  std::string part(std::size_t number) const {
    const auto bytes = item_.part(number);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  TempDir dir_;
  WebdatasetSpec spec_;
  IoPool io_{{.threads = 2}};
  FetchedItem item_;
  FakeSink sink_;
  std::uint64_t token_ = 0;
};

TEST_F(WebdatasetSourceTest, BringsThePartsOfASampleWithOneRead) {
  const auto source = open();
  ASSERT_TRUE(fetch(*source, 1, {{.part = 1}, {.part = 0}}).ok());
  EXPECT_EQ(item_.ranges().size(), 1u);
  EXPECT_EQ(part(0), "caption 1");
  EXPECT_EQ(part(1), std::string(1000, 'b'));
  // From the first byte of the first part to the last one of the last.
  EXPECT_EQ(item_.ranges()[0].size_bytes, 1024u + 512u + 9u);
}

TEST_F(WebdatasetSourceTest, KnowsWhatItsPartsAre) {
  const auto source = open();
  ASSERT_EQ(source->fields().size(), 2u);
  EXPECT_FALSE(source->fields()[0].text);
  EXPECT_EQ(source->fields()[0].max_bytes, 1000u);
  EXPECT_TRUE(source->fields()[1].text);
  EXPECT_EQ(source->fields()[1].max_bytes, 9u);
}

TEST_F(WebdatasetSourceTest, LeavesOutWhatTheCallerHasAsLongAsTheShardIsTheSame) {
  const auto source = open();
  item_.revision.asked = true;
  ASSERT_TRUE(fetch(*source, 0, {{.part = 0}, {.part = 1}}).ok());
  struct stat info {};
  ASSERT_EQ(::stat(dir_.path("a.tar").c_str(), &info), 0);
  item_.revision.known = stamp_of(info);
  ASSERT_TRUE(fetch(*source, 0, {{.part = 0}, {.part = 1}}).ok());
  EXPECT_TRUE(item_.revision.unchanged);
  EXPECT_EQ(item_.bytes.size(), 9u);
  EXPECT_EQ(part(1), "caption 0");
  // Also where there is nothing else to read, the shard is looked at.
  ASSERT_TRUE(fetch(*source, 0, {{.part = 0}}).ok());
  EXPECT_TRUE(item_.revision.unchanged);
  dir_.file("a.tar", "changed");
  EXPECT_EQ(fetch(*source, 0, {{.part = 0}}).code(), Code::kDataLoss);
}

TEST_F(WebdatasetSourceTest, NoticesAShardThatHasChanged) {
  const auto source = open();
  EXPECT_FALSE(source->has_changed());
  dir_.file("a.tar", TarWriter().file("0.jpg", "x").file("0.txt", "y").archive());
  EXPECT_TRUE(source->has_changed());
  const Status failed = fetch(*source, 1, {{.part = 0}});
  EXPECT_EQ(failed.code(), Code::kDataLoss);
  EXPECT_THAT(failed.message(), HasSubstr("a.tar has changed since it was indexed"));
  EXPECT_THAT(failed.message(), HasSubstr("spdlctl index"));
}

TEST_F(WebdatasetSourceTest, NamesASampleByItsPlaceWhereItsKeyIsGone) {
  const auto source = open();
  dir_.remove("a.tar");
  EXPECT_EQ(source->uri(1), "a.tar at byte 2560");
  EXPECT_EQ(source->read_uri(1), "a.tar at byte 2560");
  EXPECT_EQ(fetch(*source, 1, {{.part = 0}}).code(), Code::kNotFound);
}

TEST_F(WebdatasetSourceTest, ReadsShardsBelowSeveralRoots) {
  const TempDir other;
  other.file("b.tar", TarWriter().file("9.jpg", "nine").file("9.txt", "caption 9").archive());
  spec_.shards.push_back(other.path("b.tar"));
  SourceOptions options(io_);
  options.access.roots = {{dir_.path()}, {other.path()}};
  auto source = open_webdataset(spec_, std::move(options));
  ASSERT_TRUE(source) << source.error().message();
  ASSERT_EQ((*source)->size(), 4u);
  ASSERT_TRUE(fetch(**source, 3, {{.part = 0}}).ok());
  EXPECT_EQ(part(0), "nine");
  ASSERT_TRUE(fetch(**source, 0, {{.part = 1}}).ok());
  EXPECT_EQ(part(0), "caption 0");
}

TEST_F(WebdatasetSourceTest, RefusesAReaderWhoMayNotReadAShard) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can read for others";
  const auto source = open();
  ASSERT_EQ(::chmod(dir_.path("a.tar").c_str(), 0600), 0);
  const auto stranger = source->read_by({.uid = 4711, .gid = 4711});
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(stranger.error().message(), HasSubstr("a.tar"));
}

}  // namespace
}  // namespace spdld::source
