// SPDX-License-Identifier: Apache-2.0
#include "delivery/liveness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "delivery/peer.h"
#include "tests/conformance/liveness_suite.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/delivery/raw_client.h"
#include "tests/unit/delivery/recording_service.h"

namespace spdld::delivery {
namespace {

// Consumers are processes, each with a child that shares its socket, as a DataLoader's worker
// would.
class PidfdMaker {
 public:
  ~PidfdMaker() {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      end(i);
      ::kill(processes_[i].child, SIGKILL);
    }
  }

  Liveness& liveness() { return liveness_; }
  WatchedConsumer begin() {
    int commands[2];
    int answers[2];
    EXPECT_EQ(::pipe2(commands, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(answers, O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) live(commands[0], answers[1]);
    ::close(commands[0]);
    ::close(answers[1]);
    Process& process = processes_.emplace_back();
    process.pid = pid;
    process.commands = UniqueFd(commands[1]);
    process.answers = UniqueFd(answers[0]);
    process.child = process.answer();
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(socket);
    return {.socket = std::move(socket), .pid = pid};
  }
  void hang_up(std::size_t consumer) {
    const Process& process = processes_[consumer];
    ::kill(process.child, SIGKILL);
    EXPECT_EQ(::write(process.commands.get(), "h", 1), 1);
    process.answer();
  }
  void end(std::size_t consumer) {
    Process& process = processes_[consumer];
    if (process.pid == 0) return;
    ::kill(process.pid, SIGKILL);
    ::waitpid(std::exchange(process.pid, 0), nullptr, 0);
  }

 private:
  struct Process {
    pid_t pid = 0;  // 0: it has ended
    pid_t child = 0;
    UniqueFd commands;
    UniqueFd answers;

    // Blocks until the process says something.
    pid_t answer() const {
      pid_t child = 0;
      EXPECT_EQ(::read(answers.get(), &child, sizeof child), static_cast<ssize_t>(sizeof child));
      return child;
    }
  };

  // The consumer: is connected, and hangs up when it is told to.
  [[noreturn]] void live(int commands, int answers) const {
    test::RawClient client(path_);
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    (void)!::write(answers, &child, sizeof child);
    char command = 0;
    (void)!::read(commands, &command, 1);
    client.hang_up();
    (void)!::write(answers, &child, sizeof child);
    for (;;) ::pause();
  }

  test::ScratchDir dir_;
  RuntimeLock lock_ = std::move(*RuntimeLock::take(dir_.path()));
  const std::string path_ = dir_.path() + "/data.sock";
  UniqueFd listener_ = std::move(*listen_unix(lock_, path_, SOCK_SEQPACKET, 0600));
  PidfdLiveness liveness_;
  std::vector<Process> processes_;
};

// The fake that tests of DataServer use: no process is there at all.
class FakeMaker {
 public:
  Liveness& liveness() { return liveness_; }
  static WatchedConsumer begin() { return {}; }
  static void hang_up(std::size_t) {}
  void end(std::size_t consumer) { liveness_.end_process(consumer); }

 private:
  test::FakeLiveness liveness_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Pidfds, LivenessSuite, PidfdMaker);
INSTANTIATE_TYPED_TEST_SUITE_P(Fake, LivenessSuite, FakeMaker);

}  // namespace
}  // namespace spdld::delivery
