// SPDX-License-Identifier: Apache-2.0
#include "pipeline/file_applies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace spdld::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr std::chrono::hours kLong{1};
constexpr auto kTellNobody = [] {};

// What was applied, in order; "hung.yaml" hangs until it is let go.
class Applied {
 public:
  ~Applied() { let_go(); }

  void apply(const std::string& file) {
    if (file == "hung.yaml") {
      ++hangs_;
      hangs_.notify_all();
      gate_.wait(false);
    }
    MutexLock lock(mutex_);
    files_.push_back(file);
  }
  void await_hung() { hangs_.wait(0); }
  int hung() const { return hangs_; }
  void let_go() {
    gate_ = true;
    gate_.notify_all();
  }
  std::vector<std::string> files() {
    MutexLock lock(mutex_);
    return files_;
  }

 private:
  std::atomic<int> hangs_ = 0;
  std::atomic<bool> gate_ = false;
  Mutex mutex_;
  std::vector<std::string> files_ SPDLD_GUARDED_BY(mutex_);
};

TEST(FileAppliesTest, FilesAreAppliedInTheirOrder) {
  Applied applied;
  FileApplies applies([&](const std::string& file) { applied.apply(file); }, [] { return false; },
                      kTellNobody);
  applies.begin({"b.yaml", "a.yaml"});
  applies.begin({"a.yaml"});
  EXPECT_TRUE(applies.idle_within(kLong));
  EXPECT_THAT(applied.files(), ElementsAre("b.yaml", "a.yaml", "a.yaml"));
}

TEST(FileAppliesTest, AFileWhoseDataHangHoldsBackNoOther) {
  Applied applied;
  FileApplies applies([&](const std::string& file) { applied.apply(file); },
                      [&] { return applied.hung() > 0; }, kTellNobody);
  applies.begin({"hung.yaml", "a.yaml"});
  while (applied.files().empty()) {
  }
  EXPECT_THAT(applied.files(), ElementsAre("a.yaml"));
  EXPECT_FALSE(applies.idle_within(std::chrono::nanoseconds(1)));
  applied.let_go();
  EXPECT_TRUE(applies.idle_within(kLong));
  EXPECT_THAT(applied.files(), ElementsAre("a.yaml", "hung.yaml"));
}

TEST(FileAppliesTest, AFileThatIsStillBeingAppliedIsNotBegunAgain) {
  Applied applied;
  FileApplies applies([&](const std::string& file) { applied.apply(file); },
                      [&] { return applied.hung() > 0; }, kTellNobody);
  applies.begin({"hung.yaml"});
  applied.await_hung();
  applies.begin({"hung.yaml", "a.yaml"});
  while (applied.files().empty()) {
  }
  EXPECT_EQ(applied.hung(), 1);
  applied.let_go();
  EXPECT_TRUE(applies.idle_within(kLong));
  EXPECT_THAT(applied.files(), UnorderedElementsAre("a.yaml", "hung.yaml"));
}

TEST(FileAppliesTest, EachFileThatIsDoneIsTold) {
  Applied applied;
  std::atomic<int> told = 0;
  FileApplies applies([&](const std::string& file) { applied.apply(file); },
                      [&] { return applied.hung() > 0; }, [&] { ++told; });
  applies.begin({"hung.yaml", "a.yaml"});
  while (told < 2) {  // a.yaml, and that all have begun
  }
  EXPECT_TRUE(applies.pending());
  applied.let_go();
  while (told < 3) {
  }
  EXPECT_FALSE(applies.pending());
}

TEST(FileAppliesTest, NothingBeginsAfterTheStop) {
  Applied applied;
  FileApplies applies([&](const std::string& file) { applied.apply(file); }, [] { return false; },
                      kTellNobody);
  applies.stop();
  applies.begin({"a.yaml"});
  EXPECT_TRUE(applies.idle_within(kLong));
  EXPECT_THAT(applied.files(), ElementsAre());
}

}  // namespace
}  // namespace spdld::pipeline
