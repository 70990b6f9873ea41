// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "engine/executor.h"

namespace spdld::engine {
namespace {

// cgroup v2's "max 100000" or "150000 100000": quota and period. Nothing to read is no quota.
double quota_of(const std::string& cgroup) {
  std::ifstream file("/sys/fs/cgroup" + cgroup + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

}  // namespace

unsigned available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = std::max(1, CPU_COUNT(&set));

  std::ifstream self("/proc/self/cgroup");
  std::string line;
  while (std::getline(self, line)) {
    if (!line.starts_with("0::")) continue;
    // A quota of any ancestor holds too.
    for (std::string path = line.substr(3); !path.empty(); path.resize(path.rfind('/'))) {
      if (const double quota = quota_of(path); quota > 0)
        cpus = std::min(cpus, std::max(1, static_cast<int>(std::ceil(quota))));
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return static_cast<unsigned>(cpus);
}

}  // namespace spdld::engine
