// SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace spdld::failpoint {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;

constexpr std::size_t kRead = index_of("source.file.read", true);
constexpr std::size_t kSent = index_of("delivery.batch.sent", false);

std::unique_ptr<Failpoints> points(const std::string& text) {
  auto parsed = Failpoints::parse(text);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
  return parsed ? std::move(*parsed) : std::make_unique<Failpoints>();
}

std::vector<int> hits(Failpoints& points, std::size_t point, int count) {
  std::vector<int> seen;
  for (int i = 0; i < count; ++i) seen.push_back(points.hit(point));
  return seen;
}

TEST(Failpoint, DoesNothingWhereNothingWasAskedFor) {
  const auto none = points("");
  EXPECT_EQ(none->hit(kRead), 0);
  const auto other = points("source.file.open=error(EIO)");
  EXPECT_EQ(other->hit(kRead), 0);
}

TEST(Failpoint, FailsAtOneHitOrFromOneOn) {
  EXPECT_EQ(hits(*points("source.file.read=error(EIO)@2"), kRead, 4),
            (std::vector<int>{0, EIO, 0, 0}));
  EXPECT_EQ(hits(*points("source.file.read=error(ENOSPC)@2+"), kRead, 4),
            (std::vector<int>{0, ENOSPC, ENOSPC, ENOSPC}));
  EXPECT_EQ(hits(*points("source.file.read=error(EIO)"), kRead, 2), (std::vector<int>{EIO, EIO}));
}

TEST(Failpoint, CountsEachPointByItself) {
  const auto two = points("source.file.open=error(EMFILE)@2;source.file.read=error(EIO)@1");
  EXPECT_EQ(two->hit(index_of("source.file.open", true)), 0);
  EXPECT_EQ(two->hit(kRead), EIO);
  EXPECT_EQ(two->hit(index_of("source.file.open", true)), EMFILE);
}

TEST(Failpoint, GivesAHitOfManyThreadsToOneOfThem) {
  const auto shared = points("source.file.read=error(EIO)@500");
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 250; ++i) failures += shared->hit(kRead) == EIO ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 1);
}

TEST(Failpoint, WaitsAsLongAsItWasTold) {
  const auto slow = points("delivery.batch.sent=delay(20)@1");
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(slow->hit(kSent), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(20));
}

TEST(FailpointDeathTest, KillsAtTheGivenHitAndNotBefore) {
  const auto deadly = points("delivery.batch.sent=kill@3");
  EXPECT_EXIT(
      {
        deadly->hit(kSent);
        deadly->hit(kSent);
        std::_Exit(7);
      },
      ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        for (int i = 0; i < 3; ++i) deadly->hit(kSent);
        std::_Exit(7);
      },
      KilledBySignal(SIGKILL), "");
}

TEST(Failpoint, StopsUntilItIsContinued) {
  const auto stopping = points("delivery.batch.sent=stop");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    stopping->hit(kSent);
    std::_Exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST(Failpoint, RefusesWhatIsNotExactlyRightAndSaysWhy) {
  const struct {
    const char* text;
    const char* why;
  } cases[] = {
      {"source.file.read", "wanted NAME=ACTION[@N[+]]"},
      {"source.file.reed=kill", "there is no point 'source.file.reed'; there are delivery."},
      {"source.file.read=explode", "the actions are kill, stop, error(ERRNO) and delay(MS)"},
      {"source.file.read=kill ", "the actions are"},
      {"source.file.read=error", "the actions are"},
      {"source.file.read=error(EWHAT)", "the errors are EACCES"},
      {"source.file.read=error(5)", "the errors are EACCES"},
      {"delivery.batch.sent=error(EIO)", "'delivery.batch.sent' cannot fail"},
      {"source.file.read=delay(0)", "a delay is 1 to 60000 ms"},
      {"source.file.read=delay(60001)", "a delay is 1 to 60000 ms"},
      {"source.file.read=delay(5s)", "a delay is 1 to 60000 ms"},
      {"source.file.read=delay()", "a delay is 1 to 60000 ms"},
      {"source.file.read=kill@", "the number of a hit"},
      {"source.file.read=kill@0", "the number of a hit"},
      {"source.file.read=kill@-1", "the number of a hit"},
      {"source.file.read=kill@3x", "the number of a hit"},
      {"source.file.read=kill@99999999999999999999", "the number of a hit"},
      {"source.file.read=kill;source.file.read=stop", "the point is named twice"},
      {"source.file.read=kill;", "nothing follows it"},
      {";", "wanted NAME=ACTION[@N[+]]"},
  };
  for (const auto& [text, why] : cases) {
    const auto parsed = Failpoints::parse(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("SPDLD_FAILPOINTS: ")) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr(why)) << text;
  }
}

TEST(Failpoint, HasEachNameOnceAndInOrder) {
  EXPECT_TRUE(std::is_sorted(kPoints.begin(), kPoints.end(),
                             [](const Point& a, const Point& b) { return a.name < b.name; }));
  EXPECT_EQ(std::adjacent_find(kPoints.begin(), kPoints.end(),
                               [](const Point& a, const Point& b) { return a.name == b.name; }),
            kPoints.end());
}

Status leaves_with_a_status(bool& went_on) {
  SPDLD_FAILPOINT_STATUS("source.listing.write");
  went_on = true;
  return {};
}

Result<int> leaves_with_a_result() {
  SPDLD_FAILPOINT_STATUS("source.listing.write");
  return 5;
}

// What is armed stays so for the process: each runs in one of its own.
TEST(FailpointDeathTest, LeavesFunctionsThatAskForAStatus) {
  EXPECT_EXIT(
      {
        bool went_on = false;
        if (!leaves_with_a_status(went_on).ok() || !went_on) std::_Exit(1);
        arm(points("source.listing.write=error(ENOSPC)@1+"));
        went_on = false;
        const Status status = leaves_with_a_status(went_on);
        const bool right = status.code() == Code::kResourceExhausted && !went_on &&
                           status.message().find("source.listing.write") != std::string::npos &&
                           leaves_with_a_result().error() == status;
        std::_Exit(right ? 7 : 2);
      },
      ExitedWithCode(7), "");
}

TEST(FailpointDeathTest, IsArmedByTheEnvironment) {
  EXPECT_EXIT(
      {
        ::unsetenv("SPDLD_FAILPOINTS");
        if (!SPDLD_ARM_FAILPOINTS().ok() || SPDLD_FAILPOINT_ERRNO("source.file.read") != 0)
          std::_Exit(1);
        ::setenv("SPDLD_FAILPOINTS", "nonsense", 1);
        if (SPDLD_ARM_FAILPOINTS().ok()) std::_Exit(2);
        ::setenv("SPDLD_FAILPOINTS", "delivery.batch.sent=kill;source.file.read=error(EIO)", 1);
        if (!SPDLD_ARM_FAILPOINTS().ok() || SPDLD_FAILPOINT_ERRNO("source.file.read") != EIO)
          std::_Exit(3);
        SPDLD_FAILPOINT("delivery.batch.sent");
        std::_Exit(4);
      },
      KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace spdld::failpoint
