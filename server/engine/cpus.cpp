// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/cgroup.h"
#include "engine/executor.h"

namespace spdld::engine {

unsigned available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = std::max(1, CPU_COUNT(&set));
  const double quota = cpu_quota();
  if (quota > 0 && quota < cpus) cpus = std::max(1, static_cast<int>(std::ceil(quota)));
  return static_cast<unsigned>(cpus);
}

unsigned workers_ahead(int nice, bool own_cpus, unsigned cpus) {
  if (nice <= 0 || own_cpus || cpus == 1) return std::numeric_limits<unsigned>::max();
  return cpus - 1;
}

}  // namespace spdld::engine
