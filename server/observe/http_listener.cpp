// SPDX-License-Identifier: Apache-2.0
#include "observe/http_listener.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "delivery/peer.h"

namespace spdld::observe {
namespace {

// Everybody may connect: each user is shown what is that user's.
constexpr mode_t kSocketMode = 0666;

union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

Status refused(const spec::HttpConfig& config, int why) {
  const std::string cannot =
      fmt::format("http.listen: cannot listen at {} port {}: ", config.address, config.port);
  switch (why) {
    case EAFNOSUPPORT:
      return Status(Code::kFailedPrecondition,
                    cannot +
                        "no such sockets are allowed here; the systemd unit allows Unix ones "
                        "alone: add its drop-in http.conf (docs/operate.md), or listen at "
                        "unix:PATH");
    case EADDRNOTAVAIL:
      return Status(Code::kFailedPrecondition,
                    cannot + "this machine has no such address; 'ip address' lists those it has");
    case EADDRINUSE:
      return Status(Code::kAlreadyExists,
                    cannot + "another process does already; end it, or use another port");
    case EACCES:
      return Status(Code::kPermissionDenied,
                    cannot + "this user may not use so low a port; use one from 1024 on");
    default: return errno_status(why, "http.listen: listening at " + config.address);
  }
}

Status check_unix(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string directory = slash == 0 ? "/" : path.substr(0, slash);
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    return errno_status(errno, "http.listen: a socket in " + directory +
                                   " (make the directory, or use another path)");
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode))
    return {Code::kAlreadyExists,
            "http.listen: " + path + " is there and is no socket; move it away"};
  return {};
}

Result<UniqueFd> bind_tcp(const spec::HttpConfig& config) {
  Address address{};
  socklen_t bytes = sizeof address.v4;
  if (::inet_pton(AF_INET, config.address.c_str(), &address.v4.sin_addr) == 1) {
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(config.port);
  } else {
    bytes = sizeof address.v6;
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = htons(config.port);
    if (::inet_pton(AF_INET6, config.address.c_str(), &address.v6.sin6_addr) != 1)
      return tl::unexpected(refused(config, EINVAL));
  }
  UniqueFd fd(::socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return tl::unexpected(refused(config, errno));
  // Connections of a daemon that has ended are not in its way.
  const int on = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), &address.any, bytes) != 0) return tl::unexpected(refused(config, errno));
  return fd;
}

}  // namespace

Result<UniqueFd> listen_http(const spec::HttpConfig& config) {
  if (!config.unix_path.empty()) {
    auto fd = delivery::listen_unix_unlocked(config.unix_path, SOCK_STREAM, kSocketMode);
    if (!fd) return error(fd.error().code(), "http.listen: " + fd.error().message());
    return fd;
  }
  SPDLD_ASSIGN(UniqueFd fd, bind_tcp(config));
  if (::listen(fd.get(), SOMAXCONN) != 0) return tl::unexpected(refused(config, errno));
  return fd;
}

Status check_http(const spec::HttpConfig& config) {
  if (!config.unix_path.empty()) return check_unix(config.unix_path);
  if (config.address.empty()) return {};
  const auto fd = bind_tcp(config);
  return fd || fd.error().code() == Code::kAlreadyExists ? Status() : fd.error();
}

}  // namespace spdld::observe
