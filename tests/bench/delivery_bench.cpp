// SPDX-License-Identifier: Apache-2.0
// Delivery of ready batches alone: the real data server in one process, libspdld in another, and no
// decoding anywhere. `./dev bench handoff` runs it.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "spdld/loader.h"
#include "tests/unit/client/fake_daemon.h"

namespace {

using Clock = std::chrono::steady_clock;

// A server in a process of its own, as a daemon is; ends with this object.
class ServerProcess {
 public:
  explicit ServerProcess(const spdld::test::FakePipeline& pipeline) {
    int ends[2];
    SPDLD_CHECK(pipe(ends) == 0);
    pid_ = fork();
    SPDLD_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      spdlog::set_level(spdlog::level::off);
      spdld::test::FakeDaemon daemon(pipeline);
      const std::string address = daemon.address();
      SPDLD_CHECK(write(ends[1], address.data(), address.size()) ==
                  static_cast<ssize_t>(address.size()));
      for (;;) pause();
    }
    char address[4096];
    const ssize_t size = read(ends[0], address, sizeof address);
    SPDLD_CHECK(size > 0);
    address_.assign(address, static_cast<std::size_t>(size));
    close(ends[0]);
    close(ends[1]);
  }
  ~ServerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  spdld::Loader open(std::uint32_t credits) const {
    return spdld::Loader::open({.pipeline = "bench",
                                .job = "",
                                .rank = 0,
                                .world_size = 1,
                                .prefetch = credits,
                                .address = address_});
  }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

// Single next() calls that find a batch waiting, and hold it: what a trainer that is slower than
// the daemon sees.
void ready_latency() {
  constexpr std::uint32_t kCredits = 16;
  constexpr int kAtOnce = 8;
  constexpr int kRounds = 1000;
  const ServerProcess server({.steps = 1'000'000, .rows = 1, .image_bytes = 70'000});
  spdld::Loader loader = server.open(kCredits);
  std::vector<double> us;
  std::vector<spdld::Batch> held;
  loader.next();
  for (int round = 0; round < kRounds; ++round) {
    held.clear();
    usleep(1000);  // the daemon gets ahead
    for (int i = 0; i < kAtOnce; ++i) {
      const auto begun = Clock::now();
      auto batch = loader.next();
      us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begun).count());
      held.push_back(std::move(*batch));
    }
  }
  std::sort(us.begin(), us.end());
  std::printf("next(), batch ready      p50 %.2f us, p90 %.2f us, p99 %.2f us, of %zu calls\n",
              us[us.size() / 2], us[us.size() * 9 / 10], us[us.size() * 99 / 100], us.size());
}

// Batches of next to nothing, released at once.
void empty_batches() {
  constexpr int kBatches = 300'000;
  const ServerProcess server({.steps = 10'000'000, .rows = 1, .image_bytes = 64});
  spdld::Loader loader = server.open(spdld::wire::kMaxCredits);
  loader.next();
  const auto begun = Clock::now();
  for (int i = 0; i < kBatches; ++i) loader.next();
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  std::printf("empty batches            %.0f batches/s to one consumer\n", kBatches / seconds);
}

}  // namespace

int main() {
  for (int round = 0; round < 3; ++round) {
    ready_latency();
    empty_batches();
  }
  return 0;
}
