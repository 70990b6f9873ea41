// SPDX-License-Identifier: Apache-2.0
#include "ctl/address.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "cpp/src/socket_owner.h"
#include "ctl/failure.h"

namespace spdld::ctl {
namespace {

constexpr char kSocketName[] = "control.sock";
constexpr char kHowToStart[] =
    "start it with 'systemctl start spdld' or 'spdld --config FILE', or name another runtime "
    "directory by --address or $SPDLD_ADDRESS";

[[noreturn]] void unreachable(const std::string& path, const std::string& why) {
  throw Failure(kUnreachable, fmt::format("no daemon answers at {}: {}", path, why));
}

}  // namespace

std::string runtime_dir(const std::string& option) {
  std::string address = option;
  if (address.empty()) {
    const char* from_environment = std::getenv("SPDLD_ADDRESS");
    if (from_environment != nullptr) address = from_environment;
  }
  if (address.empty()) return "/run/spdld";
  if (address.find('/') == std::string::npos && address.find(':') != std::string::npos) {
    throw Failure(kWrongUsage,
                  fmt::format("address '{}' looks like host:port; this version reaches "
                              "the daemon of its own node only: give the daemon's "
                              "runtime directory",
                              address));
  }
  return address;
}

UniqueFd connect_control(const std::string& directory, std::chrono::milliseconds patience) {
  const std::string path = directory + "/" + kSocketName;
  const UniqueFd folder(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) {
    if (errno == EACCES) unreachable(path, client::denied_text(path));
    if (errno == ENOENT || errno == ENOTDIR) {
      unreachable(path,
                  fmt::format("{} is no directory; is spdld running? {}", directory, kHowToStart));
    }
    unreachable(path, std::generic_category().message(errno));
  }

  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) unreachable(path, std::generic_category().message(errno));
  // 0 would be for ever.
  const auto us = std::max<std::int64_t>(std::chrono::microseconds(patience).count(), 1);
  const timeval timeout{us / 1'000'000, us % 1'000'000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // By the directory's descriptor, since a socket's address holds 107 bytes and paths may be
  // longer.
  const std::string short_path = fmt::format("/proc/self/fd/{}/{}", folder.get(), kSocketName);
  std::memcpy(address.sun_path, short_path.c_str(), short_path.size() + 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    return socket;
  }
  switch (errno) {
    case EACCES:
    case EPERM: unreachable(path, client::denied_text(path));
    case ENOENT:
      unreachable(path, fmt::format("there is no such socket; spdld is not running, or its "
                                    "runtime_dir is another: {}",
                                    kHowToStart));
    case ECONNREFUSED:
      unreachable(path, fmt::format("the socket is there, but nobody listens: spdld has ended "
                                    "without removing it; {}",
                                    kHowToStart));
    case EAGAIN:
      unreachable(path,
                  "it accepts no connections: spdld hangs, or too many are waiting; see its "
                  "log ('journalctl -u spdld')");
    default: unreachable(path, std::generic_category().message(errno));
  }
}

}  // namespace spdld::ctl
