// SPDX-License-Identifier: Apache-2.0
#include "engine/file_prober.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/media/container/media_maker.h"

namespace spdld::engine {
namespace {

class FakeFile final : public source::FileBytes {
 public:
  explicit FakeFile(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return bytes_.size(); }
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override {
    if (fails) return error(Code::kUnavailable, path_ + ": the disk is away");
    if (offset >= bytes_.size()) return 0;
    const std::size_t count = std::min<std::size_t>(out.size(), bytes_.size() - offset);
    std::copy_n(reinterpret_cast<const char*>(bytes_.data()) + offset, count, out.data());
    return count;
  }
  bool fails = false;

 private:
  const std::string path_ = "clips/a.mp4";
  const std::vector<std::byte> bytes_;
};

TEST(FileProber, TellsWhatAFileOfASourceHolds) {
  const media::test::MediaMaker maker;
  FakeFile file(maker.make(media::test::moving_pictures(12) + "-c:v libx264 ", "a.mp4"));
  const Result<MediaFile> found = FileProber().probe(file, {});
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->streams.size(), 1U);
  EXPECT_EQ(found->streams[0].frame_pts.size(), 12U);
}

TEST(FileProber, NamesTheFileThatIsDamaged) {
  FakeFile file({});
  const Result<MediaFile> found = FileProber().probe(file, {});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error(), Status(Code::kDataLoss, "clips/a.mp4: the media file is empty"));
}

TEST(FileProber, PassesOnErrorsOfReadingAsTheyAre) {
  FakeFile file(std::vector<std::byte>(100));
  file.fails = true;
  const Result<MediaFile> found = FileProber().probe(file, {});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error(), Status(Code::kUnavailable, "clips/a.mp4: the disk is away"));
}

}  // namespace
}  // namespace spdld::engine
