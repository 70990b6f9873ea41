// SPDX-License-Identifier: Apache-2.0
#include "session/state_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>

namespace spdld::session {
namespace {

constexpr std::size_t kMaxHolderBytes = 256;

// The whole file. A lock of the open file, unlike one of the process, survives that another part of
// the process closes the same file; and over NFS it holds between hosts, as flock() need not.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string this_daemon() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("pid {} on host {}, since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(), host.data(),
                     fmt::gmtime(std::time(nullptr)));
}

std::string holder(int fd) {
  std::array<char, kMaxHolderBytes> bytes{};
  const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), 0);
  std::string text(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  text = text.substr(0, text.find('\n'));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.empty() ? "which did not say its pid" : text;
}

tl::unexpected<Status> taken(const std::string& state_dir, int fd) {
  return error(Code::kAlreadyExists,
               fmt::format("state_dir {} belongs to another daemon ({}), and two would overwrite "
                           "each other's jobs: stop that one, or give this one a directory of its "
                           "own with --set state_dir=DIR (one for each node, where nodes share a "
                           "file system)",
                           state_dir, holder(fd)));
}

std::string no_lock(const std::string& state_dir, int err) {
  return fmt::format(
      "{}: nothing keeps another daemon from using it, too; give each a state_dir of "
      "its own",
      errno_status(err, "state_dir " + state_dir + " cannot be locked").message());
}

}  // namespace

Result<StateLock> StateLock::take(const std::string& state_dir) {
  const std::string path = state_dir + "/spdld.lock";
  struct flock lock = whole_file();
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd) {
    const int failed = errno;
    // Who cannot write needs no lock, and must not meet another daemon's changes half-way.
    const UniqueFd readable(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (readable && ::fcntl(readable.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
      return taken(state_dir, readable.get());
    return StateLock(UniqueFd(), no_lock(state_dir, failed));
  }
  if (::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) return taken(state_dir, fd.get());
    return StateLock(UniqueFd(), no_lock(state_dir, errno));
  }
  // In one go over what was there: on a full disk there is room for as much. One without a name
  // locks as well.
  std::string text = this_daemon() + "\n";
  text.resize(kMaxHolderBytes, ' ');
  (void)!::pwrite(fd.get(), text.data(), text.size(), 0);
  return StateLock(std::move(fd), {});
}

}  // namespace spdld::session
