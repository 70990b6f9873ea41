// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace spdld::cuda {

// A process beside a new process, which makes it before it starts the driver. What fails in either
// ends it, as REQUIRE does.
class Peer {
 public:
  // Runs `body(socket)` there, then waits to be killed.
  explicit Peer(const std::function<void(int socket)>& body);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int socket() const { return socket_; }
  // Returns when it is dead.
  void kill();

 private:
  int pid_ = 0;
  int socket_ = -1;
};

// One word through a socket.
void tell(int socket);
void hear(int socket);

// A descriptor through a socket.
void pass(int socket, int descriptor);
int take(int socket);

}  // namespace spdld::cuda
