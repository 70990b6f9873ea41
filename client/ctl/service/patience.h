// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "ctl/failure.h"
#include "ctl/interrupt.h"
#include "ctl/program/program.h"

namespace spdld::ctl {

// A program was not waited for to its end. The message says which one, and for how long.
class OutOfPatience : public Failure {
 public:
  using Failure::Failure;
};

// How long an install waits for programs, for all of them together, unless a signal ends it before.
// One at a time, on the main thread.
class Patience {
 public:
  // `err`: is told of a wait that lasts.
  Patience(std::chrono::milliseconds most, std::ostream& err) : most_(most), err_(err) {}

  // What is waited for from now on.
  void wait_for(std::string what) { what_ = std::move(what); }
  // Runs the program to its end; throws OutOfPatience if that does not come in time.
  Ran run(const std::vector<std::string>& command);

 private:
  bool is_out();

  const Interrupt interrupt_;
  const std::chrono::milliseconds most_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::ostream& err_;
  std::string what_;  // empty: it has been told, or there is nothing to tell
};

}  // namespace spdld::ctl
