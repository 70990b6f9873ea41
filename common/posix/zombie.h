// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "posix/unique_fd.h"

namespace spdld {

// Whether a process was killed and is not gone: a thread of it hangs in the kernel, in a call to
// storage that does not answer. Its sockets are open and its locks held for as long, and nobody is
// behind them. False of a process that /proc does not show here, as that of another PID namespace.
inline bool is_zombie(pid_t pid) {
  if (pid <= 0) return false;
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(pid));
  const UniqueFd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  std::array<char, 256> text{};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return false;
  // "PID (NAME) STATE", and a name may hold anything.
  const char* const name_end = std::strrchr(text.data(), ')');
  return name_end != nullptr && (name_end[1] == ' ' && (name_end[2] == 'Z' || name_end[2] == 'X'));
}

}  // namespace spdld
