// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/waiting.h"

#include <gtest/gtest.h>

#include <string>

#include "client/cpp/src/attach.h"
#include "tests/unit/client/fake_daemon.h"

namespace spdld::client {
namespace {

using std::chrono::milliseconds;

// What a notice would say while nobody answers at `address`.
std::string said_of(const std::string& address, const Attached* known, const std::string& lost_why,
                    bool starts_daemons = false) {
  LoaderOptions options{.timeout = milliseconds(60'000), .connect_timeout = milliseconds(30'000)};
  std::string said;
  struct Heard {};
  Waiting* heard = nullptr;
  options.on_wait = [&] {
    said = heard->notice_text();
    throw Heard();
  };
  if (starts_daemons) options.on_unreachable = [](const std::string&) {};
  Waiting waiting(options, "step 5 of epoch 1 of 'pets' (shard 0 of 1)");
  heard = &waiting;
  waiting.progress(7, 9, "listing files");
  Outage outage(lost_why);
  EXPECT_THROW(Attacher(options, address, nullptr).attach({}, known, {}, waiting, outage), Heard);
  return said;
}

TEST(Waiting, SaysThatTheDaemonIsGoneAndWhenItGivesUp) {
  const test::ScratchDir dir;
  const Attached known;
  const std::string begin = "waiting for step 5 of epoch 1 of 'pets' (shard 0 of 1) for 0 s: ";
  const std::string last =
      "last attempt: connecting to " + dir.path() + "/data.sock: No such file or directory; ";
  EXPECT_EQ(said_of(dir.path(), &known, "the daemon hung up"),
            begin + "the daemon at " + dir.path() + " is gone (the daemon hung up), " + last +
                "start it again (spdld --config FILE), or this ends in 60 s");
  EXPECT_EQ(said_of(dir.path(), &known, "the daemon hung up", true),
            begin + "the daemon at " + dir.path() + " is gone (the daemon hung up), " + last +
                "this ends in 60 s")
      << "whoever starts daemons itself is not told to";
  EXPECT_EQ(said_of(dir.path(), nullptr, ""),
            begin + "no daemon answers at " + dir.path() + ", " + last +
                "start one (spdld --config FILE), or this ends in 30 s");
}

TEST(Waiting, SaysWhatTheDaemonSaidSinceItIsBack) {
  const LoaderOptions options;
  Waiting waiting(options, "a seek");
  EXPECT_EQ(waiting.notice_text(), "waiting for a seek for 0 s; the daemon does not say why");
  waiting.disconnected("it is gone; ", std::chrono::steady_clock::now() - milliseconds(5'000));
  EXPECT_EQ(waiting.notice_text(), "waiting for a seek for 0 s: it is gone; this ends in 0 s");
  waiting.reconnected();
  waiting.progress(1, 2, "indexing");
  EXPECT_EQ(waiting.notice_text(), "waiting for a seek for 0 s: indexing (1 of 2)");
}

}  // namespace
}  // namespace spdld::client
