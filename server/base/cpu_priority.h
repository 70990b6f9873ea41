// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/cgroup.h"
#include "base/status.h"

namespace spdld {

// Where the kernel tells of it; tests point it at files of their own.
struct PriorityFiles {
  CgroupFiles cgroups = {};
  std::string autogroup = "/proc/self/autogroup";
  std::string autogroups_on = "/proc/sys/kernel/sched_autogroup_enabled";
};

// What the kernel goes by when a thread and others want the same core. Of the three, the last one
// that there is: those before it count only among the threads within.
struct CpuPriority {
  enum class By {
    kNiceness,   // the thread's own
    kAutogroup,  // the niceness of its session
    kWeight,     // the CPU weight of its cgroup
  };
  By by = By::kNiceness;
  // A niceness, or a weight from 1 to 10000, of which 100 is the usual one; version 1 has shares,
  // of which that is 1024.
  int value = 0;
  std::string cgroup = {};  // whose weight it is
  int niceness = 0;         // the thread's own, among the threads within
};

// Of a thread of this process; none: the kernel does not tell.
std::optional<CpuPriority> cpu_priority(pid_t thread, const PriorityFiles& files = {});

// Gives this process's session that niceness, where niceness ends at the session. Does nothing
// where it does not, or where the session is not this process's own: the training may be in it.
Status nice_session(int nice, const PriorityFiles& files = {});

}  // namespace spdld
