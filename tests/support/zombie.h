// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "posix/zombie.h"

namespace spdld::test {

// A process whose first thread has ended, as that of one that was killed, while another thread of
// it cannot end: it keeps its files and locks. `prepare` runs in it before; false: it ends at once.
class Zombie {
 public:
  template <typename Prepare>
  explicit Zombie(const Prepare& prepare) : pid_(::fork()) {
    if (pid_ == 0) {
      if (!prepare()) ::_exit(1);
      std::thread([] {
        while (true) ::pause();
      }).detach();
      ::syscall(SYS_exit, 0);
    }
    while (!is_zombie(pid_) && ::kill(pid_, 0) == 0) std::this_thread::yield();
  }
  ~Zombie() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Zombie(const Zombie&) = delete;
  Zombie& operator=(const Zombie&) = delete;

 private:
  pid_t pid_;
};

}  // namespace spdld::test
