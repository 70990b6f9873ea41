// SPDX-License-Identifier: Apache-2.0
#include "source/file/expected_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "source/item/indexed_files.h"

namespace spdld::source {
namespace {

using ::testing::HasSubstr;

constexpr ItemStamp kIndexed{.device = 1,
                             .inode = 2,
                             .size_bytes = 10240,
                             .mtime_ns = 1'000'000'000'000'000'001,
                             .ctime_ns = 1'000'000'000'000'000'002};
constexpr std::int64_t kLater = 2'000'000'000'000'000'000;

// Says what a test tells it to, and counts how often it was asked.
class Told final : public IndexedFiles {
 public:
  Status compare(std::uint64_t, FileBytes& file) const override {
    ++asked;
    char byte = 0;
    if (!file.read(0, {&byte, 1})) return {Code::kDataLoss, "its headers cannot be read"};
    return says;
  }

  Status says;
  mutable int asked = 0;
};

class FakePart final : public PartBytes {
 public:
  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return kIndexed.size_bytes; }
  Result<std::size_t> read(std::uint64_t, std::span<char> out) override {
    if (!failed.ok()) return tl::unexpected(failed);
    if (reading) reading();
    return out.size();
  }
  std::optional<ItemStamp> stamp() const override { return now; }

  std::optional<ItemStamp> now = kIndexed;
  Status failed;
  std::function<void()> reading;

 private:
  const std::string path_ = "/data/a.tar";
};

class ExpectedContentTest : public ::testing::Test {
 protected:
  Likeness look(const ItemStamp& now) { return likeness(expected(), now, how_); }
  ExpectedContent expected(std::uint64_t number = 3) {
    return {.stamp = kIndexed, .files = told_.get(), .number = number};
  }
  // The indexed stamp with another inode, as a copy has.
  static ItemStamp copied() {
    ItemStamp now = kIndexed;
    now.inode = 7;
    return now;
  }

  const std::shared_ptr<Told> told_ = std::make_shared<Told>();
  FakePart part_;
  std::string how_;
};

TEST_F(ExpectedContentTest, OnlyTheIndexedStampNeedsNoComparison) {
  for (int differs = 0; differs < 32; ++differs) {
    ItemStamp now = kIndexed;
    if ((differs & 1) != 0) now.inode += 1;
    if ((differs & 2) != 0) now.ctime_ns += 1;
    if ((differs & 4) != 0) now.size_bytes += 1;
    if ((differs & 8) != 0) now.mtime_ns += 1;
    if ((differs & 16) != 0) now.device += 1;
    const Likeness expected = (differs & 12) != 0  ? Likeness::kOther
                              : (differs & 3) != 0 ? Likeness::kUnknown
                                                   : Likeness::kSame;
    EXPECT_EQ(look(now), expected) << differs;
    // One that was compared is what came out.
    if (expected != Likeness::kUnknown) continue;
    told_->remember(3, now, {});
    EXPECT_EQ(look(now), Likeness::kSame) << differs;
    told_->remember(3, now, {Code::kDataLoss, "it holds other samples"});
    EXPECT_EQ(look(now), Likeness::kOther) << differs;
    EXPECT_THAT(how_, HasSubstr("its size and time are the same, but it holds other samples"));
  }
}

TEST_F(ExpectedContentTest, ComparesOnceForEachChangeOfAFile) {
  part_.now = copied();
  ASSERT_TRUE(compare_content(expected(), part_, kLater).ok());
  EXPECT_EQ(look(copied()), Likeness::kSame);
  ItemStamp again = copied();
  again.ctime_ns += 1;
  EXPECT_EQ(look(again), Likeness::kUnknown);
  EXPECT_EQ(likeness(expected(4), copied(), how_), Likeness::kUnknown) << "it is another file";
}

TEST_F(ExpectedContentTest, RemembersAFileThatIsAnother) {
  part_.now = copied();
  told_->says = {Code::kDataLoss, "it holds other samples"};
  const Status compared = compare_content(expected(), part_, kLater);
  EXPECT_EQ(compared.code(), Code::kDataLoss);
  EXPECT_THAT(compared.message(), HasSubstr("but it holds other samples"));
  EXPECT_EQ(look(copied()), Likeness::kOther);
}

TEST_F(ExpectedContentTest, RemembersNothingWhileAnotherChangeMayLeaveTheStamp) {
  part_.now = copied();
  ASSERT_TRUE(compare_content(expected(), part_, kIndexed.ctime_ns + 1).ok());
  EXPECT_EQ(look(copied()), Likeness::kUnknown);
}

TEST_F(ExpectedContentTest, TakesNoErrorOfReadingForOtherContent) {
  part_.now = copied();
  part_.failed = {Code::kUnavailable, "cannot read /data/a.tar: Input/output error"};
  EXPECT_EQ(compare_content(expected(), part_, kLater), part_.failed);
  EXPECT_EQ(look(copied()), Likeness::kUnknown);
}

TEST_F(ExpectedContentTest, ComparesAgainWhatChangedMeanwhile) {
  part_.now = copied();
  part_.reading = [this] { part_.now->ctime_ns += 1; };
  EXPECT_EQ(compare_content(expected(), part_, kLater).code(), Code::kUnavailable);
  EXPECT_EQ(look(copied()), Likeness::kUnknown);
}

TEST_F(ExpectedContentTest, ForgetsWhatItRemembersBeforeThatTakesMuchMemory) {
  constexpr std::uint64_t kFiles = 70'000;
  for (std::uint64_t number = 0; number < kFiles; ++number) told_->remember(number, copied(), {});
  EXPECT_FALSE(told_->known(0, copied()));
  EXPECT_TRUE(told_->known(kFiles - 1, copied()));
}

}  // namespace
}  // namespace spdld::source
