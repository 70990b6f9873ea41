// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace spdld::gpu {

ServerProcess::ServerProcess(std::string program, std::uint64_t batch_bytes, bool to_gpus)
    : program_(std::move(program)), batch_bytes_(batch_bytes), to_gpus_(to_gpus) {
  char name[] = "/tmp/spdld-gpu-XXXXXX";
  dir_ = ::mkdtemp(name);
  start();
}

ServerProcess::~ServerProcess() {
  stop();
  std::filesystem::remove_all(dir_);
}

void ServerProcess::start() {
  int input[2];
  int output[2];
  if (::pipe2(input, O_CLOEXEC) != 0 || ::pipe2(output, O_CLOEXEC) != 0) std::abort();
  const std::string bytes = std::to_string(batch_bytes_);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(input[0], STDIN_FILENO);
    ::dup2(output[1], STDOUT_FILENO);
    ::execl(program_.c_str(), program_.c_str(), dir_.c_str(), bytes.c_str(),
            to_gpus_ ? "gpu" : "host", nullptr);
    ::_exit(127);
  }
  ::close(input[0]);
  ::close(output[1]);
  input_ = input[1];
  char line[8] = {};
  if (::read(output[0], line, sizeof line) <= 0 || line[0] != 'r') {
    std::fprintf(stderr, "%s does not start\n", program_.c_str());
    std::exit(1);
  }
  ::close(output[0]);
}

void ServerProcess::kill() {
  ::kill(pid_, SIGKILL);
  stop();
}

void ServerProcess::stop() {
  if (pid_ < 0) return;
  ::close(input_);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace spdld::gpu
