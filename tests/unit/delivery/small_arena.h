// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "delivery/arena.h"
#include "delivery/memory_probe.h"

namespace spdld::delivery {

// Bounds nothing but the budget itself.
inline const MemoryFiles kNoFiles{.meminfo = "", .self_cgroup = "", .cgroup_root = ""};

inline const ArenaShape kShape{.kind = ArenaKind::kMemfd, .slot_bytes = 10'000, .slot_count = 3};

}  // namespace spdld::delivery
