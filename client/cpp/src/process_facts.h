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

// For how long threads that come to ask were ready to run and had no core, each since it asked
// first. Not thread-safe: one thread at a time asks.
class CoreWaits {
 public:
  // Of the calling thread since it was asked about last, added to the rest; wire::kNotKnown: the
  // kernel does not tell.
  std::uint64_t ms();

 private:
  pid_t thread_ = 0;  // that asked last
  std::uint64_t its_ns_ = 0;
  std::uint64_t ns_ = 0;
};

}  // namespace spdld::client
