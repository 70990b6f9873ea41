// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace spdld::client {

// What operators are shown of this process, cut to a readable length; empty where it cannot be
// told.
std::string command_line();
std::string host_name();

// Adds up for how long the threads that call ms() were ready to run and had no core, each from its
// first call on. Not thread-safe: one thread at a time calls.
class CoreWaits {
 public:
  // The sum; wire::kNotKnown: the kernel does not tell.
  std::uint64_t ms();

 private:
  pid_t thread_ = 0;             // the last caller
  std::uint64_t thread_ns_ = 0;  // as the kernel told of that thread
  std::uint64_t ns_ = 0;
};

}  // namespace spdld::client
