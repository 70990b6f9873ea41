// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "base/status.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

// How the end of a consumer's process is noticed. A hang-up alone is not enough: a forked child
// keeps the socket open after its parent died. An interface, so that tests decide who lives.
class Liveness {
 public:
  virtual ~Liveness() = default;

  // An fd that becomes readable when the process at the other end of `socket` has ended; none when
  // the kernel cannot tell (its PID namespace is not ours): then the hang-up stands for it.
  virtual Result<UniqueFd> watch(int socket, pid_t pid) = 0;
};

// pidfds: SO_PEERPIDFD where there is one (Linux 6.5), else pidfd_open and a second look at the
// socket, since a pid is reused but a pidfd is not.
class PidfdLiveness final : public Liveness {
 public:
  Result<UniqueFd> watch(int socket, pid_t pid) override;
};

}  // namespace spdld::delivery
