// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <string>

#include "spdld/loader.h"

namespace spdld::client {

// Tells on_notice, or stderr.
void notify(const LoaderOptions& options, const std::string& text);

using SteadyTime = std::chrono::steady_clock::time_point;

// One wait for the daemon: in slices, so that the caller is asked whether to go on, and never
// silently: after a while it says what it waits for. Only silence counts towards the timeout.
class Waiting {
 public:
  // `options` outlives it. `what` ends a sentence: "step 17 of epoch 0".
  Waiting(const LoaderOptions& options, std::string what);

  // Waits until `events` (POLLIN, POLLOUT) or a hang-up happen on `fd`, or a slice or `at_most`
  // have passed; true if something happened. fd < 0: just sleeps. Throws TimeoutError, and what
  // on_wait throws.
  bool wait(int fd, short events, std::chrono::milliseconds at_most);

  // A sign of life, and what the daemon said it is doing.
  void alive();
  void progress(std::uint64_t done, std::uint64_t total, const std::string& text);
  // What it waits for does not come on, says the daemon: no sign of life.
  void standstill(const std::string& text);
  // Until reconnected(), nobody is there to say anything: `text` says why and what to do, and the
  // caller gives up at `until`.
  void disconnected(const std::string& text, SteadyTime until);
  void reconnected();
  // What it waits for, since when, and why: what a notice says.
  std::string notice_text() const;
  std::chrono::milliseconds waited() const;

 private:
  void notice();

  const LoaderOptions& options_;
  const std::string what_;
  const SteadyTime start_;
  SteadyTime asked_;  // on_wait
  SteadyTime alive_;
  SteadyTime next_notice_;
  std::string doing_;
  bool stands_ = false;       // says doing_
  std::string disconnected_;  // empty: is not
  SteadyTime gives_up_;       // if disconnected
};

// Pauses between attempts: from 10 ms to 1 s, doubling, each drawn from its upper half
// so that the ranks of a node do not come all at once.
class Backoff {
 public:
  Backoff();
  std::chrono::milliseconds next();

 private:
  std::minstd_rand random_;
  std::chrono::milliseconds pause_{10};
};

}  // namespace spdld::client
