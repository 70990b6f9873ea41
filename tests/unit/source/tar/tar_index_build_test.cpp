// SPDX-License-Identifier: Apache-2.0
#include "source/tar/tar_index_build.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

namespace fs = std::filesystem;

using test::TarWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using IndexPtr = std::shared_ptr<const TarIndex>;

class TarIndexBuild : public ::testing::Test {
 protected:
  TarIndexBuild() {
    spec_.shards = {dir_.path("t-{0..3}.tar")};
    spec_.parts = {{.field = "image", .suffixes = {"jpg"}}};
    spec_.labels = {{.field = "label", .suffixes = {"cls"}}};
    for (int shard = 0; shard < 4; ++shard) write_shard(shard, 100);
    options_.directory = dir_.path("state");
    options_.warnings = &warnings_;
    options_.keep_each = {};
    options_.progress = [this](const TarIndexProgress& progress) { progress_ = progress; };
    // Shards have been as they are for a while.
    options_.now_ns = [] { return (::time(nullptr) + 10) * 1'000'000'000; };
  }

  std::string shard(int number) const { return dir_.path("t-" + std::to_string(number) + ".tar"); }

  // `age_s` in the past: a stamp that tells later changes.
  void write_shard(int number, int samples, std::int64_t age_s = 1000) {
    TarWriter tar;
    for (int i = 0; i < samples; ++i) {
      const std::string key = std::to_string(number) + "/" + std::to_string(1000 + i);
      tar.file(key + ".cls", std::to_string(i)).file(key + ".jpg", std::string(50, 'j'));
    }
    dir_.file("t-" + std::to_string(number) + ".tar", tar.archive());
    set_time(number, ::time(nullptr) - age_s);
  }

  void set_time(int number, std::int64_t seconds) const {
    const timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 1},
                               {.tv_sec = seconds, .tv_nsec = 1}};
    ASSERT_EQ(::utimensat(AT_FDCWD, shard(number).c_str(), times, 0), 0);
  }

  Result<OpenedTarIndex> open() {
    return open_tar_index(spec_, Access(AccessRules{}, Access::trusted()), options_);
  }

  IndexPtr opened() {
    auto index = open();
    if (!index) ADD_FAILURE() << index.error().message();
    if (index) name_ = index->name;
    return index ? index->index : nullptr;
  }

  // What keeps the index that was opened last.
  std::string file() const { return name_ + ".tarindex"; }

  Status failed() {
    const auto index = open();
    return index ? Status() : index.error();
  }

  // Makes it no tar archive, with its size and time left alone.
  void spoil(int number) {
    struct stat info {};
    ASSERT_EQ(::stat(shard(number).c_str(), &info), 0);
    const int fd = ::open(shard(number).c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(::pwrite(fd, "spoilt", 6, 0), 6);
    ::close(fd);
    const timespec times[2] = {info.st_atim, info.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, shard(number).c_str(), times, 0), 0);
  }

  std::vector<std::string> kept() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(options_.directory, none))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string kept_bytes(const std::string& name) const {
    std::ifstream in(options_.directory + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempDir dir_;
  WebdatasetSpec spec_;
  TarIndexOptions options_;
  std::vector<std::string> warnings_;
  TarIndexProgress progress_;
  std::string name_;
};

std::vector<std::int64_t> labels(const TarIndex& index) {
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < index.size(); ++i)
    labels.push_back(std::get<std::int64_t>(index.values().value(i, 0)));
  return labels;
}

TEST_F(TarIndexBuild, IndexesAllShardsInTheOrderOfTheirNames) {
  const IndexPtr index = opened();
  EXPECT_EQ(index->size(), 400u);
  EXPECT_EQ(index->shards()[3].path, shard(3));
  EXPECT_EQ(index->shards()[3].stamp.size_bytes, fs::file_size(shard(3)));
  std::vector<TarPart> parts(1);
  const TarIndex::Place place = index->find(250, parts);
  EXPECT_EQ(place.shard, 2u);
  EXPECT_EQ(place.header_offset, 50u * 2048);
  EXPECT_EQ(parts[0], (TarPart{.offset = 50 * 2048 + 1536, .size = 50, .present = true}));
  EXPECT_EQ(labels(*index)[250], 50);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(TarIndexBuild, ComesToTheSameWithAnyNumberOfThreads) {
  options_.directory.clear();
  const std::string digest = opened()->digest();
  for (const int threads : {1, 3, 16}) {
    options_.threads = threads;
    EXPECT_EQ(opened()->digest(), digest);
  }
}

TEST_F(TarIndexBuild, KeepsOneFileThatServesTheNextTime) {
  const IndexPtr first = opened();
  EXPECT_THAT(kept(), ElementsAre(file()));
  EXPECT_EQ(progress_.shards_kept, 0u);
  const std::string bytes = kept_bytes(kept()[0]);
  const IndexPtr second = opened();
  EXPECT_EQ(progress_.shards_kept, 4u);
  EXPECT_EQ(second->digest(), first->digest());
  EXPECT_EQ(labels(*second), labels(*first));
  EXPECT_EQ(kept_bytes(kept()[0]), bytes);
}

TEST_F(TarIndexBuild, KeepsWhatWasThereBesideWhatIsThereNow) {
  const std::string digest = opened()->digest();
  const std::string before = name_;
  write_shard(1, 90);
  opened();
  EXPECT_NE(name_, before);
  EXPECT_FALSE(same_tar_data(name_, before));
  const auto index = load_tar_index(spec_, options_.directory, before);
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ((*index)->digest(), digest);
  EXPECT_EQ((*index)->size(), 400u);
}

TEST_F(TarIndexBuild, KnowsTheSameSamplesAtAnotherPlace) {
  opened();
  const std::string before = name_;
  dir_.directory("moved");
  for (int i = 0; i < 4; ++i)
    fs::rename(shard(i), dir_.path("moved/t-" + std::to_string(i) + ".tar"));
  spec_.shards = {dir_.path("moved/t-{0..3}.tar")};
  opened();
  EXPECT_NE(name_, before);
  EXPECT_TRUE(same_tar_data(name_, before));
}

TEST_F(TarIndexBuild, LoadsNothingThatIsNotThereOrIsDamaged) {
  EXPECT_EQ(load_tar_index(spec_, options_.directory, "none").error().code(), Code::kNotFound);
  opened();
  std::string bytes = kept_bytes(file());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  dir_.file("state/" + file(), bytes);
  EXPECT_EQ(load_tar_index(spec_, options_.directory, name_).error().code(), Code::kDataLoss);
}

TEST_F(TarIndexBuild, KeepsNothingWithoutADirectory) {
  options_.directory.clear();
  opened();
  EXPECT_FALSE(fs::exists(dir_.path("state")));
}

TEST_F(TarIndexBuild, ReadsOnlyShardsThatHaveChanged) {
  opened();
  write_shard(1, 120, 500);
  const IndexPtr index = opened();
  EXPECT_EQ(progress_.shards_kept, 3u);
  EXPECT_EQ(index->size(), 420u);
  EXPECT_EQ(index->shards()[1].samples(), 120u);
  EXPECT_EQ(opened()->size(), 420u);
  EXPECT_EQ(progress_.shards_kept, 4u);
}

TEST_F(TarIndexBuild, NoticesAShardOfTheSameSizeAndOtherTimes) {
  opened();
  spoil(2);
  // Its change time tells, though size and modification time do not.
  EXPECT_EQ(failed().code(), Code::kDataLoss);
}

TEST_F(TarIndexBuild, SaysHowFarItIs) {
  std::vector<std::uint64_t> bytes;
  options_.progress = [&](const TarIndexProgress& progress) {
    progress_ = progress;
    bytes.push_back(progress.bytes_done);
  };
  for (int i = 0; i < 2; ++i) {
    opened();
    EXPECT_EQ(progress_.shards, 4u);
    EXPECT_EQ(progress_.shards_done, 4u);
    EXPECT_EQ(progress_.samples, 400u);
    EXPECT_EQ(progress_.bytes_done, progress_.bytes);
  }
  EXPECT_TRUE(std::is_sorted(bytes.begin(), bytes.end()));
}

TEST_F(TarIndexBuild, AsksForRightsAlsoWhereAnIndexIsKept) {
  opened();
  AccessRules rules;
  rules.own_directories = {dir_.path()};
  const auto denied = open_tar_index(spec_, Access(rules, Access::trusted()), options_);
  EXPECT_EQ(denied.error().code(), Code::kPermissionDenied);
}

TEST_F(TarIndexBuild, TakesUpShardsThatAreNamedBesideThoseBefore) {
  spec_.shards = {dir_.path("t-*.tar")};
  opened();
  write_shard(4, 10);
  EXPECT_EQ(opened()->size(), 410u);
  EXPECT_EQ(progress_.shards_kept, 4u);
  fs::remove(shard(0));
  EXPECT_EQ(opened()->size(), 310u);
  EXPECT_EQ(progress_.shards_kept, 4u);
}

TEST_F(TarIndexBuild, TakesShardsFromAnIndexOfOtherNames) {
  spec_.shards = {dir_.path("t-{0..2}.tar")};
  opened();
  const std::string bytes = kept_bytes(kept()[0]);
  spec_.shards = {dir_.path("t-{1..3}.tar")};
  EXPECT_EQ(opened()->size(), 300u);
  EXPECT_EQ(progress_.shards_kept, 2u);
  EXPECT_THAT(kept(), SizeIs(2));
  spec_.shards = {dir_.path("t-{0..2}.tar")};
  opened();
  EXPECT_EQ(progress_.shards_kept, 3u);
  EXPECT_EQ(kept_bytes(file()), bytes);
}

TEST_F(TarIndexBuild, ReadsShardsAgainWhoseTimesAreTooYoung) {
  write_shard(0, 100, -3600);
  opened();
  opened();
  EXPECT_EQ(progress_.shards_kept, 3u);
}

TEST_F(TarIndexBuild, GoesOnWhereItFailed) {
  options_.threads = 1;
  // The last shard fails, so that what was done of the others is kept.
  spoil(3);
  EXPECT_EQ(failed().code(), Code::kDataLoss);
  EXPECT_THAT(kept(), SizeIs(3));
  write_shard(3, 7);
  EXPECT_EQ(opened()->size(), 307u);
  EXPECT_EQ(progress_.shards_kept, 3u);
  EXPECT_THAT(kept(), ElementsAre(file()));
}

TEST_F(TarIndexBuild, CanBeStopped) {
  std::stop_source stop;
  options_.stop = stop.get_token();
  stop.request_stop();
  EXPECT_EQ(failed().code(), Code::kCancelled);
}

TEST_F(TarIndexBuild, RefusesAShardThatChangesWhileItIsRead) {
  spec_.shards = {shard(1)};
  options_.now_ns = [this]() -> std::int64_t {
    set_time(1, 1'700'000'000);
    return 0;
  };
  const Status status = failed();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(shard(1) + " changed while it was read; try again"));
}

TEST_F(TarIndexBuild, KeepsWhatIsDoneWhenItFails) {
  options_.keep_each = std::chrono::hours(1);
  options_.threads = 1;
  spoil(3);
  EXPECT_EQ(failed().code(), Code::kDataLoss);
  ASSERT_THAT(kept(), SizeIs(1));
  EXPECT_THAT(kept()[0], HasSubstr(".part"));
}

TEST_F(TarIndexBuild, MakesAnewWhatIsDamagedAndSaysSoOnce) {
  const std::string digest = opened()->digest();
  const std::string name = kept()[0];
  const std::string good = kept_bytes(name);
  std::vector<std::string> damaged{"", "SPDLTAR1", good.substr(0, good.size() / 2), good + "x",
                                   std::string(1000, 'x')};
  for (std::uint64_t i = 0; i < 20; ++i) {
    damaged.push_back(good);
    KeyedRng rng(i);
    damaged.back()[rng.below(good.size())] ^= 1;
  }
  for (const std::string& bytes : damaged) {
    warnings_.clear();
    dir_.file("state/" + name, bytes);
    EXPECT_EQ(opened()->digest(), digest);
    ASSERT_THAT(warnings_, SizeIs(1));
    EXPECT_THAT(warnings_[0],
                AllOf(HasSubstr(dir_.path("state/" + name) + " is no index of these shards"),
                      HasSubstr("it is made anew")));
    warnings_.clear();
    EXPECT_EQ(opened()->digest(), digest);
    EXPECT_THAT(warnings_, IsEmpty());
  }
}

TEST_F(TarIndexBuild, DoesNotTakeTheIndexOfAnotherQuery) {
  opened();
  const std::string foreign = kept_bytes(kept()[0]);
  spec_.labels.clear();
  opened();
  dir_.file("state/" + file(), foreign);
  EXPECT_EQ(opened()->values().size(), 0u);
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("other things were asked of them"));
}

TEST_F(TarIndexBuild, TakesNothingOfTheIndexOfAnotherPlace) {
  opened();
  const std::string foreign = kept_bytes(kept()[0]);
  dir_.directory("moved");
  for (int i = 0; i < 4; ++i) fs::copy(shard(i), dir_.path("moved"));
  const std::string digest = opened()->digest();
  spec_.shards = {dir_.path("moved/t-{0..3}.tar")};
  opened();
  dir_.file("state/" + file(), foreign);
  const IndexPtr index = opened();
  EXPECT_EQ(index->shards()[0].path, dir_.path("moved/t-0.tar"));
  EXPECT_EQ(index->digest(), digest);
}

TEST_F(TarIndexBuild, WorksWhereNothingCanBeKept) {
  dir_.file("state", "in the way");
  EXPECT_EQ(opened()->size(), 400u);
  EXPECT_THAT(warnings_, ::testing::Contains(
                             HasSubstr("was not kept, and will be made again after a restart")));
}

TEST_F(TarIndexBuild, NamesShardsThatAreMissing) {
  spec_.shards = {dir_.path("t-{0..9}.tar")};
  const Status status = failed();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("6 of 10 shards are not there where spdld runs: " + shard(4)),
                    HasSubstr(", ...")));
}

TEST_F(TarIndexBuild, NamesShardsThatMayNotBeRead) {
  fs::remove(shard(1));
  dir_.directory("t-1.tar");
  EXPECT_THAT(failed().message(), HasSubstr("cannot read " + shard(1)));
}

TEST_F(TarIndexBuild, FailsAtTheFirstShardThatIsDamaged) {
  options_.threads = 4;
  for (const int number : {1, 2, 3}) spoil(number);
  for (int i = 0; i < 20; ++i)
    EXPECT_THAT(failed().message(), HasSubstr(shard(1) + ": at byte 0: it is no tar archive"));
}

TEST_F(TarIndexBuild, PassesOnWhatIsNoError) {
  TarWriter tar;
  tar.file("9/1.cls", "1").file("9/1.jpg", "");
  dir_.file("t-2.tar", tar.bytes());
  opened();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("t-2.tar has no end marker")));
}

TEST_F(TarIndexBuild, IsBounded) {
  options_.max_shards = 3;
  EXPECT_EQ(failed().code(), Code::kResourceExhausted);
}

TEST_F(TarIndexBuild, AsksForItsMemoryShardByShard) {
  const auto memory = [](std::uint64_t bytes) {
    return std::make_shared<ListingMemory>(bytes, TrustedUsers())->share(100'002);
  };
  options_.memory = memory(100);
  EXPECT_EQ(failed().code(), Code::kResourceExhausted);
  EXPECT_THAT(failed().message(), HasSubstr("the index of the shards: its items would take"));
  options_.memory = memory(std::uint64_t{1} << 20);
  const IndexPtr index = opened();
  std::uint64_t bytes = 0;
  for (const ShardIndex& shard : index->shards()) bytes += shard.memory_bytes();
  EXPECT_GE(options_.memory->bytes(), bytes);
}

TEST_F(TarIndexBuild, TakesItsClassesFromTheOptions) {
  TarWriter tar;
  tar.file("a.jpg", "").file("a.cls", "dog").file("b.jpg", "").file("b.cls", "cat");
  dir_.file("c.tar", tar.archive());
  spec_.shards = {dir_.path("c.tar")};
  options_.classes = {"cat", "dog"};
  const IndexPtr index = opened();
  EXPECT_THAT(index->classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(labels(*index), ElementsAre(1, 0));
  // Other numbers for the same names are another index.
  options_.classes = {"dog", "cat"};
  EXPECT_THAT(labels(*opened()), ElementsAre(0, 1));
}

TEST_F(TarIndexBuild, RefusesASpecThatNoIndexCanAnswer) {
  spec_.index = {{.field = "label", .suffix = "json", .pointer = "/x"}};
  EXPECT_THAT(failed().message(), HasSubstr("the field 'label' is named twice"));
}

}  // namespace
}  // namespace spdld::source
