// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

// A listener that systemd opened for us (socket activation): FileDescriptorName= of its unit.
struct ActivatedSocket {
  std::string name;  // "data", "control"
  UniqueFd fd;
};

// What LISTEN_FDS passes to this process; none outside systemd. Takes the variables out of the
// environment, so that children do not see them. Each must be a listening Unix socket; data is
// SOCK_SEQPACKET, control SOCK_STREAM. Call once, before other threads start.
Result<std::vector<ActivatedSocket>> activated_sockets();

// Tells systemd "READY=1", "STOPPING=1", "STATUS=...", "WATCHDOG=1"; nothing outside systemd.
void notify_systemd(const std::string& state);

}  // namespace spdld::delivery
