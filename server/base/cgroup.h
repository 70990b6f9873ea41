// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace spdld {

// Where the kernel tells of this process's cgroups; tests point it at files of their own.
struct CgroupFiles {
  std::string self = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
  std::string pressure = "/proc/pressure/cpu";  // of the machine
};

// A cgroup of version 1 or 2, whose files have other names.
struct Cgroup {
  std::string name;       // "/a/b"
  std::string directory;  // which ends in '/'; it may not be there
  bool is_v1 = false;
};

// Visits this process's cgroups of the controller ("memory", "cpu") in both versions, and all above
// them: each has a limit of its own. A container sees its own group as the root.
void for_each_cgroup(const CgroupFiles& files, std::string_view controller,
                     const std::function<void(const Cgroup&)>& visit);

// How many cores' time the tightest of those quotas gives. 0: there is none.
double cpu_quota(const CgroupFiles& files = {});

// How long, on all cores together, such quotas have kept groups from running, in all. None: the
// kernel does not tell.
std::optional<std::chrono::nanoseconds> cpu_throttled(const CgroupFiles& files = {});

// The share of the last 10 s in which some thread of the machine waited for a core, or, where the
// kernel does not tell that, one of this process's cgroup. None: it tells neither.
std::optional<double> cpu_pressure(const CgroupFiles& files = {});

}  // namespace spdld
