// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace spdld::gpu {

// A source_server in a process of its own, in a directory of its own under /tmp.
class ServerProcess {
 public:
  // `program` is its path. Returns once it serves; ends this process if it does not.
  ServerProcess(std::string program, std::uint64_t batch_bytes, bool to_gpus);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& address() const { return dir_; }
  void kill();   // by SIGKILL
  void start();  // again, in the same directory

 private:
  void stop();

  const std::string program_;
  const std::uint64_t batch_bytes_;
  const bool to_gpus_;
  std::string dir_;
  pid_t pid_ = -1;
  int input_ = -1;
};

}  // namespace spdld::gpu
