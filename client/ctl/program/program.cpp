// SPDX-License-Identifier: Apache-2.0
#include "ctl/program/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "posix/unique_fd.h"

namespace spdld::ctl {
namespace fs = std::filesystem;
namespace {

constexpr int kAskMs = 100;

}  // namespace

std::string daemon_program() {
  if (const char* named = std::getenv("SPDLD_BIN"); named != nullptr && *named != '\0')
    return named;
  std::array<char, PATH_MAX> own{};
  const ssize_t count = ::readlink("/proc/self/exe", own.data(), own.size() - 1);
  if (count > 0) {
    std::string beside(own.data(), static_cast<std::size_t>(count));
    beside.erase(beside.rfind('/') + 1);
    beside += "spdld";
    if (::access(beside.c_str(), X_OK) == 0) return beside;
  }
  return "spdld";
}

std::string path_of_program(const std::string& name) {
  std::vector<fs::path> candidates;
  if (name.find('/') != std::string::npos) {
    candidates.emplace_back(name);
  } else if (const char* path = std::getenv("PATH"); path != nullptr) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');)
      candidates.push_back(fs::path(folder) / name);
  }
  for (const fs::path& candidate : candidates) {
    std::error_code failed;
    const fs::path absolute = fs::absolute(candidate, failed).lexically_normal();
    if (!failed && fs::is_regular_file(absolute, failed) && ::access(absolute.c_str(), X_OK) == 0)
      return absolute.string();
  }
  return {};
}

Ran run_program(const std::vector<std::string>& command, Errors errors,
                const std::function<bool()>& give_up) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {.error = errno};
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  if (errors == Errors::kInText)
    posix_spawn_file_actions_adddup2(&actions, to.get(), STDERR_FILENO);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  Ran ran;
  ran.error = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (ran.error != 0) return ran;
  to.reset();
  std::array<char, 4096> part{};
  for (;;) {
    pollfd printed{.fd = from.get(), .events = POLLIN, .revents = 0};
    if (give_up && ::poll(&printed, 1, kAskMs) <= 0) {
      if (!give_up()) continue;
      ::kill(child, SIGKILL);
      ran.error = ETIMEDOUT;
      return ran;
    }
    const ssize_t count = ::read(from.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    ran.text.append(part.data(), static_cast<std::size_t>(count));
  }
  while (::waitpid(child, &ran.status, 0) < 0 && errno == EINTR) {
  }
  return ran;
}

}  // namespace spdld::ctl
