// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_priority.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include "posix/unique_fd.h"

namespace spdld {
namespace {

constexpr double kUsualWeight = 100;
constexpr double kUsualShares = 1024;
constexpr double kMostWeight = 10000;
// The kernel takes one write of all unprivileged processes in a tenth of a second.
constexpr std::chrono::milliseconds kAutogroupPause{20};
constexpr int kAutogroupTries = 50;

// The root has no weight, and of version 1 a file all the same. A group without the controller
// counts with the one above it.
std::optional<CpuPriority> weight_of(const CgroupFiles& files) {
  std::optional<CpuPriority> found;
  for_each_cgroup(files, "cpu", [&](const Cgroup& group) {
    if (found || (group.is_v1 && group.name == "/")) return;
    std::ifstream file(group.directory + (group.is_v1 ? "cpu.shares" : "cpu.weight"));
    double weight = 0;
    if (!(file >> weight)) return;
    if (group.is_v1) weight = std::round(weight * kUsualWeight / kUsualShares);
    found = CpuPriority{.by = CpuPriority::By::kWeight,
                        .value = static_cast<int>(std::clamp(weight, 1.0, kMostWeight)),
                        .cgroup = group.name};
  });
  return found;
}

bool has_autogroups(const PriorityFiles& files) {
  std::ifstream file(files.autogroups_on);
  int on = 0;
  return file >> on && on != 0;
}

// 0, or the errno.
int write_to(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) >= 0 ? 0 : errno;
}

}  // namespace

std::optional<CpuPriority> cpu_priority(pid_t thread, const PriorityFiles& files) {
  if (!std::ifstream(files.cgroups.self)) return std::nullopt;
  errno = 0;
  const int niceness = getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
  if (niceness == -1 && errno != 0) return std::nullopt;
  if (auto weight = weight_of(files.cgroups)) {
    weight->niceness = niceness;
    return weight;
  }
  if (has_autogroups(files)) {
    std::ifstream file(files.autogroup);  // "/autogroup-71 nice 10"
    std::string name;
    std::string nice;
    int value = 0;
    if (!(file >> name >> nice >> value)) return std::nullopt;
    return CpuPriority{.by = CpuPriority::By::kAutogroup, .value = value, .niceness = niceness};
  }
  return CpuPriority{.by = CpuPriority::By::kNiceness, .value = niceness, .niceness = niceness};
}

Status nice_session(int nice, const PriorityFiles& files) {
  if (!has_autogroups(files) || getsid(0) != getpid()) return {};
  int failed = write_to(files.autogroup, std::to_string(nice));
  for (int tries = 1; failed == EAGAIN && tries < kAutogroupTries; ++tries) {
    std::this_thread::sleep_for(kAutogroupPause);
    failed = write_to(files.autogroup, std::to_string(nice));
  }
  return failed == 0 ? Status() : errno_status(failed, files.autogroup);
}

}  // namespace spdld
