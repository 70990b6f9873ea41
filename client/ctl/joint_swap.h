// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ctl/daemon.h"

namespace spdld::ctl {

// Milliseconds of a monotonic clock; tests put their own in its place. Called on one thread.
using NowMs = std::function<std::chrono::milliseconds()>;
NowMs steady_now_ms();

// One job on several daemons, each of which feeds some of its shards, and what it changes to.
struct JointSwap {
  std::vector<std::string> directories;  // the daemons'; at least one
  v1::PipelineText text;
  v1::SwapRequest swap;                       // of one job, to a step
  std::string command;                        // that asks for this, as a shell takes it
  std::chrono::milliseconds timeout{30'000};  // for which a daemon may be silent
};

// Changes the job at the same step on all of the daemons, which do not talk to each other:
//  1. Asks all at once, by a dry run, whether they could. Nothing is changed when one refuses, is
//     gone or silent, or has other data or another point than the others, when the point is too
//     near, or on Ctrl-C. From here on, Ctrl-C ends nothing.
//  2. Has each of them change the job at the step, all at once: each does it durably, or refuses.
//  3. If one refuses, those that have done it for this call drop it again, as long as the step lies
//     ahead.
// Where a daemon did not answer in step 2 the Failure says what has become of each, and which
// commands end or undo it. The same call again does what is missing. Returns what each has done, in
// their order. For the main thread; the calls run on threads of its own, which have ended when it
// returns.
std::vector<v1::SwapResult> swap_everywhere(const JointSwap& joint,
                                            const Daemon::OnProgress& on_progress,
                                            const NowMs& now);

}  // namespace spdld::ctl
