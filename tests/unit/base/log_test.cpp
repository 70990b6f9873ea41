// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

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

class LogOutput : public ::testing::Test {
 protected:
  ~LogOutput() override { spdlog::set_default_logger(before_); }

  static std::string logged(const std::string& level, const std::string& format,
                            const std::string& text) {
    EXPECT_TRUE(log::configure(level, format).ok());
    ::testing::internal::CaptureStderr();
    spdlog::warn("{}", text);
    spdlog::debug("quiet");
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(LogOutput, WritesOneJsonObjectALineWhateverTheText) {
  const std::string line = logged("info", "json", "a \"b\" \\ c\nd\x01");
  EXPECT_THAT(
      line, AllOf(StartsWith("{\"time\":\""), HasSubstr("\"level\":\"warning\""),
                  HasSubstr(R"("message":"a \"b\" \\ c\u000ad\u0001"})"), Not(HasSubstr("quiet"))));
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

}  // namespace
}  // namespace spdld
