// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "base/text/printable.h"

namespace spdld::ctl {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,       // the operation
  kWrongUsage = 2,   // the command line or a configuration
  kUnreachable = 3,  // the daemon
};

// Ends the command: main() prints the message and exits with the code.
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode exit_code, const std::string& message, bool transient = false)
      : std::runtime_error(message), exit_code_(exit_code), transient_(transient) {}
  ExitCode exit_code() const { return exit_code_; }
  // Nobody refused: the same may succeed a moment later. Whether it was done is not known.
  bool transient() const { return transient_ || exit_code_ == kUnreachable; }

 private:
  ExitCode exit_code_;
  bool transient_;
};

// Ends the command because of a file that its command line names.
[[noreturn]] inline void fail_of_file(const std::string& path, const std::string& why) {
  throw Failure(kWrongUsage, printable(path) + " " + why);
}

}  // namespace spdld::ctl
