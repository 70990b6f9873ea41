// SPDX-License-Identifier: Apache-2.0
#include "process_facts.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "posix/unique_fd.h"
#include "spdld/wire.h"

namespace spdld::client {
namespace {

constexpr std::size_t kMaxCommandBytes = 256;

}  // namespace

std::string command_line() {
  const UniqueFd file(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return {};
  std::array<char, kMaxCommandBytes> bytes;
  const ssize_t read = ::read(file.get(), bytes.data(), bytes.size());
  std::string line(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
  while (!line.empty() && line.back() == '\0') line.pop_back();
  std::replace(line.begin(), line.end(), '\0', ' ');
  // Arguments may hold anything, a shell's script say: one line of them.
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return line;
}

std::uint64_t CoreWaits::ms() {
  const UniqueFd file(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};  // "time on a core, time without, slices"
  if (file.get() < 0 || ::read(file.get(), text.data(), text.size() - 1) <= 0)
    return wire::kNotKnown;
  char* rest = nullptr;
  if (std::strtoull(text.data(), &rest, 10) == 0) return wire::kNotKnown;  // it does not count
  const std::uint64_t without_ns = std::strtoull(rest, &rest, 10);
  const auto thread = static_cast<pid_t>(::syscall(SYS_gettid));
  if (std::exchange(thread_, thread) == thread)
    ns_ += without_ns - std::min(without_ns, thread_ns_);
  thread_ns_ = without_ns;
  return ns_ / 1'000'000;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

}  // namespace spdld::client
