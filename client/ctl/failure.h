// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

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
  Failure(ExitCode exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

}  // namespace spdld::ctl
