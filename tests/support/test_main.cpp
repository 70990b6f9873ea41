// SPDX-License-Identifier: Apache-2.0
// The main() of every test program: a test that does not end is named and ends the program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

// The message of the test that runs, made before it starts, as a signal's handler may allocate
// nothing.
std::array<char, 512> message;
std::size_t message_size = 0;

void on_alarm(int) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, message.data(), message_size);
  std::abort();
}

// The seconds that one test may take: $SPDLD_TEST_SECONDS, of which 0 is no limit; else 60, or 180
// where a sanitizer looks at every step.
unsigned limit_seconds() {
#ifdef SPDLD_SANITIZED
  unsigned limit = 180;
#else
  unsigned limit = 60;
#endif
  if (const char* const text = std::getenv("SPDLD_TEST_SECONDS")) {
    const std::string_view given = text;
    std::from_chars(given.data(), given.data() + given.size(), limit);
  }
  return limit;
}

// Sets an alarm for each test. A forked child has none; whoever waits for it has.
class Watchdog final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& test) override {
    const unsigned limit = limit_seconds();
    const std::string text = std::string("\nwatchdog: ") + test.test_suite_name() + "." +
                             test.name() + " did not end within " + std::to_string(limit) + " s\n";
    message_size = std::min(text.size(), message.size());
    std::memcpy(message.data(), text.data(), message_size);
    alarm(limit);
  }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  std::signal(SIGALRM, on_alarm);
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog);  // gtest deletes it
  const int failed = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() > 0) return failed;
  std::fputs("no test has such a name\n", stderr);
  return 1;
}
