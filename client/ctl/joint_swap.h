// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ctl/daemon.h"

namespace spdld::ctl {

// Time as a joint swap goes by it; tests put their own in its place.
struct Pace {
  std::function<std::chrono::milliseconds()> now;  // monotonic
  std::function<void(std::chrono::milliseconds)> pause;

  static Pace real();
};

// One job on several daemons, each of which feeds some of its shards, and what it changes to.
struct JointSwap {
  std::vector<std::string> directories;  // the daemons'; at least one
  v1::PipelineText text;
  v1::SwapRequest swap;  // of one job, to a step
  std::chrono::milliseconds timeout{30'000};
  // The command that does it on one daemon alone.
  std::function<std::string(const std::string& directory)> alone;
};

// Changes the job on all of the daemons at the same step, or on none: prepares on all at once,
// commits when all have prepared, and aborts everywhere otherwise. Nothing is committed when
//  - a daemon refuses, is gone, lists other data than the others, or has the job change elsewhere,
//  - more than half of the shortest hold has passed since the first had prepared, so that a commit
//    might come too late,
//  - Ctrl-C came before the first commit. Beyond it, Ctrl-C ends nothing.
// The first commit decides: if it fails, the others are told to abort. After it, a commit that gets
// no answer is tried again for as long as that daemon holds its shards. Throws Failure, which says
// of each daemon what it has done and what mends it. Returns what each committed, in their order.
// For the main thread; the calls run on threads of its own, which have ended when it returns.
std::vector<v1::SwapResult> swap_everywhere(const JointSwap& joint,
                                            const Daemon::OnProgress& on_progress,
                                            const Pace& pace);

}  // namespace spdld::ctl
