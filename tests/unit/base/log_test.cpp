// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "posix/unique_fd.h"

namespace spdld {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Log, RefusesALevelThatIsNone) {
  const Status status = log::configure("loud", "text");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "log.level 'loud' is none of trace, debug, info, warning, error, critical, off");
}

TEST(Log, RefusesAFormatThatIsNone) {
  const Status status = log::configure("info", "xml");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "log.format 'xml' is neither text nor json");
}

TEST(Log, LeavesTheLoggerAloneWhenItRefuses) {
  const auto before = spdlog::default_logger();
  EXPECT_FALSE(log::configure("info", "xml").ok());
  EXPECT_EQ(spdlog::default_logger(), before);
}

// Long enough for any machine; a test that waits for it has failed.
constexpr std::chrono::seconds kPatience{120};

class LogOutput : public ::testing::Test {
 protected:
  ~LogOutput() override { spdlog::set_default_logger(before_); }

  static std::string logged(const std::string& level, const std::string& format,
                            const std::string& text) {
    EXPECT_TRUE(log::configure(level, format).ok());
    ::testing::internal::CaptureStderr();
    spdlog::warn("{}", text);
    spdlog::debug("quiet");
    EXPECT_TRUE(log::drain(kPatience));
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(LogOutput, WritesOneJsonObjectALineWhateverTheText) {
  const std::string line = logged("info", "json", "a \"b\" \\ c\nd\x01");
  EXPECT_THAT(line,
              AllOf(StartsWith("{\"time\":\""), HasSubstr("\"level\":\"warning\""),
                    HasSubstr(R"("message":"a \"b\" \\ c\\nd\\x01"})"), Not(HasSubstr("quiet"))));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST_F(LogOutput, WritesPrioritiesForTheJournal) {
  ::setenv("JOURNAL_STREAM", "8:1", 1);
  EXPECT_EQ(logged("info", "text", "mind this"), "<4>mind this\n");
  ::unsetenv("JOURNAL_STREAM");
  EXPECT_THAT(logged("info", "text", "mind this"), HasSubstr(" W mind this\n"));
}

TEST_F(LogOutput, WritesNothingBelowItsLevel) {
  EXPECT_THAT(logged("debug", "text", "x"), HasSubstr("quiet"));
  EXPECT_EQ(logged("off", "text", "x"), "");
}

TEST_F(LogOutput, EscapesWhatWouldForgeALineOrMoveTheCursor) {
  const std::string forged =
      "cl\xff\n2026-01-01 00:00:00.000 E forged \x1b[2J \xc2\x9b caf\xc3\xa9";
  const std::string text = logged("info", "text", forged);
  EXPECT_THAT(text, HasSubstr(R"(W cl\xff\n2026-01-01 00:00:00.000 E forged \x1b[2J \xc2\x9b caf)"
                              "\xc3\xa9\n"));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::json::parse(logged("info", "json", forged));
  EXPECT_EQ(json.at("message"), R"(cl\xff\n2026-01-01 00:00:00.000 E forged \x1b[2J \xc2\x9b caf)"
                                "\xc3\xa9");
}

TEST_F(LogOutput, CutsALineThatIsTooLong) {
  const std::string line = logged("info", "text", std::string(100'000, 'x'));
  EXPECT_LT(line.size(), 20'000U);
  EXPECT_THAT(line, HasSubstr("(100000 bytes in all)"));
}

TEST_F(LogOutput, GivesJsonLinesWhatTheyAreAboutAsFields) {
  ASSERT_TRUE(log::configure("info", "json").ok());
  ::testing::internal::CaptureStderr();
  log::info({.job = "run \"7\"\n", .pipeline = "pets", .session = 3, .pid = 17, .uid = 1001},
            "session {} ended", 3);
  log::info({}, "nothing in particular");
  ASSERT_TRUE(log::drain(kPatience));
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  std::string first;
  std::string second;
  std::getline(lines, first);
  std::getline(lines, second);
  const auto json = nlohmann::json::parse(first);
  EXPECT_EQ(json.at("job"), R"(run "7"\n)");
  EXPECT_EQ(json.at("pipeline"), "pets");
  EXPECT_EQ(json.at("session"), 3);
  EXPECT_EQ(json.at("pid"), 17);
  EXPECT_EQ(json.at("uid"), 1001);
  EXPECT_EQ(json.at("message"), "session 3 ended");
  EXPECT_FALSE(nlohmann::json::parse(second).contains("job"));
}

TEST_F(LogOutput, LeavesOutWhatOneUserCausesBeyondItsQuotaAndTellsHowMuch) {
  ASSERT_TRUE(log::configure("info", "text").ok());
  ::testing::internal::CaptureStderr();
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) log::info({.uid = 1001, .has_quota = true}, "garbage");
  log::info({.uid = 1002, .has_quota = true}, "of another user");
  spdlog::info("of the daemon");
  ASSERT_TRUE(log::drain(kPatience));
  const std::string output = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(output, AllOf(HasSubstr("of another user"), HasSubstr("of the daemon")));
  int written = 0;
  for (auto at = output.find("garbage"); at != std::string::npos;
       at = output.find("garbage", at + 1))
    ++written;
  EXPECT_LT(written, kLines / 2);
  EXPECT_THAT(output, HasSubstr("log: " + std::to_string(kLines - written) +
                                " lines that user 1001 has caused were left out"));
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
  }
  // All there is, up to the end, or until `last` has come.
  std::string read_until(const std::string& last) const {
    std::string text;
    std::vector<char> buffer(1 << 16);
    while (last.empty() || text.find(last) == std::string::npos) {
      const ssize_t got = ::read(reader.get(), buffer.data(), buffer.size());
      if (got <= 0) break;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return text;
  }
  UniqueFd reader;
  UniqueFd writer;
};

TEST_F(LogOutput, NeverWaitsForAReaderAndTellsItWhatIsMissing) {
  const Pipe pipe;
  ASSERT_TRUE(log::configure("info", "text", pipe.writer.get()).ok());
  constexpr int kLines = 100'000;  // some ten times what the queue and the pipe hold
  const auto say = [](int i) { spdlog::info("line {:06} {}", i, std::string(100, '-')); };
  say(0);
  ASSERT_TRUE(log::drain(kPatience));  // it is in the pipe
  for (int i = 1; i < kLines; ++i) say(i);
  EXPECT_FALSE(log::drain(std::chrono::milliseconds(1)));
  spdlog::info("the last one");
  const std::string text = pipe.read_until("the last one");
  int lines = 0;
  for (auto at = text.find(" line "); at != std::string::npos; at = text.find(" line ", at + 1))
    ++lines;
  EXPECT_LT(lines, kLines / 2);
  int missing = 0;  // where the reader was late, and before that where the writer was
  for (auto at = text.find("log: "); at != std::string::npos; at = text.find("log: ", at + 1))
    missing += std::atoi(text.c_str() + at + 5);
  EXPECT_EQ(missing, kLines - lines);
  EXPECT_THAT(text, AllOf(HasSubstr("line 000000 "), HasSubstr("line 099999 "),
                          HasSubstr(" lines are missing here, nobody read them in time")));
}

TEST_F(LogOutput, GoesOnWhenTheReaderHasGone) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  ASSERT_TRUE(log::configure("info", "text", pipe.writer.get()).ok());
  pipe.reader.reset();
  spdlog::info("to nobody");
  EXPECT_TRUE(log::drain(kPatience));
}

// What a child that ends as `end` does had logged before.
template <typename End>
std::string logged_before(End end, int* status) {
  Pipe pipe;
  const pid_t child = ::fork();
  if (child == 0) {
    (void)log::configure("info", "text", pipe.writer.get());
    for (int i = 0; i < 3000; ++i) spdlog::info("line {:04} {}", i, std::string(100, '-'));
    end();
    ::_exit(99);
  }
  pipe.writer.reset();
  const std::string text = pipe.read_until({});
  EXPECT_EQ(::waitpid(child, status, 0), child);
  return text;
}

TEST(LogAtTheEnd, IsWrittenBeforeACrash) {
  int status = 0;
  EXPECT_THAT(logged_before([] { std::abort(); }, &status), HasSubstr("line 2999 "));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_THAT(logged_before([] { ::kill(::getpid(), SIGSEGV); }, &status), HasSubstr("line 2999 "));
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);  // sanitizers exit
}

TEST(LogAtTheEnd, TellsWhichCheckFailed) {
  int status = 0;
  const std::string text = logged_before([] { SPDLD_CHECK(1 + 1 == 3); }, &status);
  EXPECT_THAT(text, AllOf(HasSubstr("line 2999 "), HasSubstr("1 + 1 == 3 does not hold\n")));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

TEST(LogAtTheEnd, KeepsNoProcessThatLeavesFromLeaving) {
  const Pipe pipe;  // nobody reads it
  const pid_t child = ::fork();
  if (child == 0) {
    (void)log::configure("info", "text", pipe.writer.get());
    for (int i = 0; i < 3000; ++i) spdlog::info("line {:04} {}", i, std::string(100, '-'));
    (void)log::drain(std::chrono::milliseconds(10));
    std::exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
}

}  // namespace
}  // namespace spdld
