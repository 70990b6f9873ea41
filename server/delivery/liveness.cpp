// SPDX-License-Identifier: Apache-2.0
#include "delivery/liveness.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>

namespace spdld::delivery {
namespace {

#ifndef SO_PEERPIDFD
constexpr int kPeerPidfd = 77;  // since Linux 6.5
#else
constexpr int kPeerPidfd = SO_PEERPIDFD;
#endif

bool hung_up(int socket) {
  pollfd look{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

Result<UniqueFd> PidfdLiveness::watch(int socket, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) return UniqueFd(fd);
  if (errno == EMFILE || errno == ENFILE) {
    return tl::unexpected(errno_status(errno, "opening a pidfd (raise LimitNOFILE)"));
  }
  if (pid <= 0) return UniqueFd();
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) {
    if (errno == ENOSYS || errno == EPERM) return UniqueFd();  // an old kernel, a strict sandbox
    return tl::unexpected(errno_status(errno, "opening a pidfd of the consumer"));
  }
  // Had the consumer ended before pidfd_open, the pid might be another's by now.
  if (hung_up(socket)) return error(Code::kUnavailable, "the consumer is gone already");
  return pidfd;
}

}  // namespace spdld::delivery
