// SPDX-License-Identifier: Apache-2.0
#include "delivery/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/descriptors.h"

namespace spdld::delivery {
namespace {

// Whoever can write to the directory can put a socket of their own in the place of the daemon's,
// and clients would trust it. The daemon's own group may: under a umask of 002 every directory is
// so.
Status check_runtime_dir(const std::string& path, const struct stat& info) {
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Status(Code::kPermissionDenied,
                  fmt::format("runtime_dir {} belongs to uid {}, who could replace the daemon's "
                              "sockets; set a directory of uid {} (who runs spdld) or of root",
                              path, info.st_uid, ::geteuid()));
  }
  const bool by_group =
      (info.st_mode & S_IWGRP) != 0 && info.st_gid != ::getegid() && info.st_gid != 0;
  if ((info.st_mode & S_IWOTH) == 0 && !by_group) return {};
  return Status(
      Code::kPermissionDenied,
      fmt::format("runtime_dir {} can be written to by {}, who could replace the daemon's "
                  "sockets: 'chmod {}-w {}', or set another one",
                  path, by_group ? fmt::format("gid {}", info.st_gid) : "everybody",
                  by_group ? "g" : "o", path));
}

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return error(Code::kInvalidArgument,
                 fmt::format("the socket path {} has {} bytes, and the kernel allows {}; set a "
                             "shorter runtime_dir",
                             path, path.size(), sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Replaces what a socket's last owner left there.
Result<UniqueFd> listen_at(const sockaddr_un& address, int type, mode_t mode) {
  const std::string path = address.sun_path;
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) {
      return error(Code::kAlreadyExists,
                   fmt::format("{} is there and is no socket; move it away", path));
    }
    if (::unlink(path.c_str()) != 0) {
      return tl::unexpected(errno_status(errno, "removing the stale socket " + path));
    }
  }
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return tl::unexpected(errno_status(errno, "making the socket " + path));
  // The file gets its final permissions before anybody can connect: listen() comes last.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return tl::unexpected(errno_status(errno, "binding " + path));
  }
  // Not through a link that somebody has put there meanwhile.
  if (::fchmodat(AT_FDCWD, path.c_str(), mode, AT_SYMLINK_NOFOLLOW) != 0) {
    return tl::unexpected(errno_status(errno, "setting the permissions of " + path));
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) {
    return tl::unexpected(errno_status(errno, "listening on " + path));
  }
  return fd;
}

}  // namespace

Result<RuntimeLock> RuntimeLock::take(const std::string& runtime_dir) {
  if (::mkdir(runtime_dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return tl::unexpected(errno_status(
        errno, fmt::format("making runtime_dir {} (make it, or set another one)", runtime_dir)));
  }
  const UniqueFd directory(::open(runtime_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!directory || ::fstat(directory.get(), &info) != 0) {
    return tl::unexpected(errno_status(errno, "opening runtime_dir " + runtime_dir));
  }
  SPDLD_TRY(check_runtime_dir(runtime_dir, info));
  auto lock = LockFile::take(runtime_dir + "/lock", LockFile::Kind::kFlock);
  if (lock) return RuntimeLock(*std::move(lock));
  if (lock.error().code() == Code::kAlreadyExists)
    return error(Code::kAlreadyExists,
                 fmt::format("another daemon ({}) runs in {}; stop it, or set another runtime_dir",
                             lock.error().message(), runtime_dir));
  if (lock.error().code() == Code::kPermissionDenied &&
      ::fstatat(directory.get(), "lock", &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      info.st_uid != ::geteuid()) {
    return error(lock.error().code(),
                 fmt::format("{}: a daemon that uid {} has started serves there, or has left this "
                             "file; end that one and remove the file, or set another runtime_dir",
                             lock.error().message(), info.st_uid));
  }
  return error(lock.error().code(),
               lock.error().message() + " (is runtime_dir writable for this user?)");
}

Result<UniqueFd> listen_unix(const RuntimeLock&, const std::string& path, int type, mode_t mode) {
  SPDLD_ASSIGN(const sockaddr_un address, unix_address(path));
  return listen_at(address, type, mode);
}

Result<UniqueFd> listen_unix_unlocked(const std::string& path, int type, mode_t mode) {
  SPDLD_ASSIGN(const sockaddr_un address, unix_address(path));
  const UniqueFd probe(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return tl::unexpected(errno_status(errno, "making the socket " + path));
  const int connected =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (connected != 0 && (errno == ENOENT || errno == ECONNREFUSED))
    return listen_at(address, type, mode);
  if (connected != 0 && errno != EAGAIN && errno != EPROTOTYPE)
    return tl::unexpected(errno_status(errno, "looking at " + path));
  return error(Code::kAlreadyExists,
               fmt::format("another process listens at {}; end it, or use another path", path));
}

SocketFile socket_file_at(const std::string& path) {
  struct stat found {};
  if (path.empty() || ::lstat(path.c_str(), &found) != 0) return {};
  return {.path = path, .device = found.st_dev, .inode = found.st_ino};
}

void remove_socket(const SocketFile& file) {
  const SocketFile now = socket_file_at(file.path);
  if (!now.path.empty() && now == file) ::unlink(file.path.c_str());
}

Result<UniqueFd> accept_connection(int listener) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) return fd;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return error(Code::kUnavailable, "nobody waits to be accepted");
    }
    if (errno == EMFILE || errno == ENFILE) {
      note_descriptor_shortage(errno);
      return error(Code::kResourceExhausted,
                   fmt::format("accepting a connection: {}; raise LimitNOFILE (ulimit -n)",
                               std::strerror(errno)));
    }
    return tl::unexpected(errno_status(errno, "accepting a connection"));
  }
}

}  // namespace spdld::delivery
