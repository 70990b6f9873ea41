// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/peer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/new_process.h"
#include "tests/support/pass_descriptor.h"

namespace spdld::cuda {

Peer::Peer(const std::function<void(int)>& body) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    body(ends[1]);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  socket_ = ends[0];
}

Peer::~Peer() {
  kill();
  ::close(socket_);
}

void Peer::kill() {
  if (pid_ == 0) return;
  REQUIRE(::kill(pid_, SIGKILL) == 0);
  REQUIRE(::waitpid(pid_, nullptr, 0) == pid_);
  pid_ = 0;
}

void tell(int socket) { REQUIRE(::send(socket, "x", 1, MSG_NOSIGNAL) == 1); }

void hear(int socket) {
  char word = 0;
  REQUIRE(::recv(socket, &word, 1, 0) == 1);
}

void pass(int socket, int descriptor) { REQUIRE(test::send_descriptor(socket, descriptor)); }

int take(int socket) {
  const int descriptor = test::receive_descriptor(socket);
  REQUIRE(descriptor >= 0);
  return descriptor;
}

}  // namespace spdld::cuda
