// SPDX-License-Identifier: Apache-2.0
// source_server DIR BATCH_BYTES host|gpu: serves made-up batches in DIR/data.sock until its
// standard input ends; says "ready" once it does.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "delivery/liveness.h"
#include "delivery/peer.h"
#include "tests/gpu/batch_source.h"

int main(int argc, char** argv) {
  using namespace spdld;
  if (argc != 4) return 2;
  const std::string dir = argv[1];
  gpu::BatchSource source({.batch_bytes = std::strtoull(argv[2], nullptr, 10),
                           .to_gpus = std::string(argv[3]) == "gpu"});
  auto lock = delivery::RuntimeLock::take(dir);
  if (!lock) {
    std::fprintf(stderr, "%s\n", lock.error().message().c_str());
    return 1;
  }
  auto listener = delivery::listen_unix(*lock, dir + "/data.sock", SOCK_SEQPACKET, 0600);
  if (!listener) {
    std::fprintf(stderr, "%s\n", listener.error().message().c_str());
    return 1;
  }
  delivery::PidfdLiveness liveness;
  auto server = delivery::DataServer::start(std::move(*listener), {.server_name = "source 1.0"},
                                            liveness, source);
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message().c_str());
    return 1;
  }
  source.set_post([&](std::function<void()> task) { (*server)->post(std::move(task)); });
  std::puts("ready");
  std::fflush(stdout);
  for (char byte = 0; ::read(STDIN_FILENO, &byte, 1) > 0;) {
  }
  (*server)->stop();
}
