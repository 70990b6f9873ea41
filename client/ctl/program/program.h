// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace spdld::ctl {

// The daemon's program: $SPDLD_BIN, or what stands beside this program, or "spdld", to be looked
// for on the PATH.
std::string daemon_program();

// The absolute path of a program that is named as in a shell; empty where there is none.
std::string path_of_program(const std::string& name);

// What became of a program.
struct Ran {
  int error = 0;   // errno, where it could not be started
  int status = 0;  // as waitpid() has it
  std::string text = {};
  bool ok() const { return error == 0 && status == 0; }
};

enum class Errors { kOurs, kInText };  // where its standard error goes

// Runs it to its end, and reads what it prints. `give_up` is asked several times a second: once it
// says so the program is killed, and not waited for, as it may hang in the kernel; the error is
// ETIMEDOUT then.
Ran run_program(const std::vector<std::string>& command, Errors errors,
                const std::function<bool()>& give_up = {});

}  // namespace spdld::ctl
