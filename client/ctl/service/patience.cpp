// SPDX-License-Identifier: Apache-2.0
#include "ctl/service/patience.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace spdld::ctl {
namespace {

constexpr std::chrono::seconds kQuiet{1};  // most programs have ended by then

std::string seconds(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

}  // namespace

Ran Patience::run(const std::vector<std::string>& command) {
  Ran ran = run_program(command, Errors::kInText, [this] { return is_out(); });
  const bool interrupted = interrupt_.requested();  // by Ctrl-C the program has been, too
  if (ran.ok() || (ran.error != ETIMEDOUT && !interrupted)) return ran;
  const std::string line = fmt::format("'{}'", fmt::join(command, " "));
  throw OutOfPatience(kFailed, interrupted ? line + " was interrupted"
                                           : fmt::format("{} has not ended in {} (--timeout)", line,
                                                         seconds(most_)));
}

bool Patience::is_out() {
  const auto waited = std::chrono::steady_clock::now() - begun_;
  if (interrupt_.requested() || waited >= most_) return true;
  if (waited >= kQuiet && !what_.empty()) {
    err_ << fmt::format("waits up to {} for {}", seconds(most_), std::exchange(what_, "")) << '\n'
         << std::flush;
  }
  return false;
}

}  // namespace spdld::ctl
