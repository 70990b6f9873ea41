// SPDX-License-Identifier: Apache-2.0
#include "base/lock_file.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "posix/zombie.h"

namespace spdld {
namespace {

constexpr std::size_t kTextBytes = 512;

// The whole file.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// 0, EWOULDBLOCK where another process has it, or another errno.
int lock_now(int fd, LockFile::Kind kind) {
  if (kind == LockFile::Kind::kFlock) return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  return errno == EACCES ? EWOULDBLOCK : errno;
}

std::string link_text(const char* path) {
  std::array<char, 64> text{};
  const ssize_t got = ::readlink(path, text.data(), text.size());
  return {text.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

std::string text_of(int fd) {
  std::array<char, kTextBytes> bytes{};
  const ssize_t got = fd < 0 ? 0 : ::pread(fd, bytes.data(), bytes.size(), 0);
  return {bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

// Where a pid means the same process: this boot of this machine, and this PID namespace.
std::string where_pids_hold() {
  const UniqueFd boot(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  return std::string(first_line(text_of(boot.get()))) + " " + link_text("/proc/self/ns/pid");
}

// One line for people, and one by which others tell whether they may look for the pid.
std::string this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("pid {} on host {}, since {:%Y-%m-%d %H:%M:%S} UTC\n{}\n", ::getpid(),
                     host.data(), fmt::gmtime(std::time(nullptr)), where_pids_hold());
}

struct Holder {
  std::string told;  // who, for messages
  bool is_zombie = false;
};

Holder holder_of(int fd) {
  const std::string text = text_of(fd);
  const std::string_view line = first_line(text);
  Holder holder{.told = std::string(line)};
  for (char& c : holder.told) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (holder.told.empty()) holder.told = "which did not say its pid";
  constexpr std::string_view kPid = "pid ";
  pid_t pid = 0;
  if (!line.starts_with(kPid) || line.size() == text.size()) return holder;
  std::from_chars(line.data() + kPid.size(), line.data() + line.size(), pid);
  const std::string_view where = std::string_view(text).substr(line.size() + 1);
  holder.is_zombie = first_line(where) == where_pids_hold() && is_zombie(pid);
  return holder;
}

Result<UniqueFd> open_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd) return tl::unexpected(errno_status(errno, "opening " + path));
  return fd;
}

// Whether the path leads to this file still: somebody may have put another one there.
bool is_at(const std::string& path, int fd) {
  struct stat opened {};
  struct stat found {};
  return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &found) == 0 &&
         opened.st_dev == found.st_dev && opened.st_ino == found.st_ino;
}

// Opens and locks the file. kAlreadyExists: another process has the lock, and `found` tells which.
Result<UniqueFd> try_to_take(const std::string& path, LockFile::Kind kind, Holder& found) {
  while (true) {
    SPDLD_ASSIGN(UniqueFd fd, open_file(path));
    if (const int failed = lock_now(fd.get(), kind); failed != 0) {
      if (failed != EWOULDBLOCK) return tl::unexpected(errno_status(failed, "locking " + path));
      found = holder_of(fd.get());
      return error(Code::kAlreadyExists, found.told);
    }
    if (is_at(path, fd.get())) return fd;
  }
}

}  // namespace

Result<LockFile> LockFile::take(const std::string& path, Kind kind) {
  Holder found;
  auto fd = try_to_take(path, kind, found);
  UniqueFd only;
  if (!fd && found.is_zombie) {
    // One at a time: nobody removes the file of another who has just taken it.
    SPDLD_ASSIGN(only, open_file(path + ".next"));
    if (const int failed = lock_now(only.get(), kind); failed != 0)
      return error(Code::kAlreadyExists, holder_of(only.get()).told);
    fd = try_to_take(path, kind, found);
    if (!fd && found.is_zombie) {
      if (::unlink(path.c_str()) != 0)
        return tl::unexpected(errno_status(errno, "removing " + path));
      fd = try_to_take(path, kind, found);
    }
  }
  if (!fd) return tl::unexpected(fd.error());
  // In one go over what was there: on a full disk there is room for as much. A lock without a name
  // locks as well.
  std::string text = this_process();
  text.resize(kTextBytes, ' ');
  (void)!::pwrite(fd->get(), text.data(), text.size(), 0);
  return LockFile(*std::move(fd), kind);
}

std::string LockFile::holder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct flock lock = whole_file(F_WRLCK);
  const bool held = fd && ::fcntl(fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return held ? holder_of(fd.get()).told : std::string();
}

void LockFile::release() const noexcept {
  if (kind_ == Kind::kFlock) {
    (void)::flock(fd_.get(), LOCK_UN);
  } else {
    struct flock lock = whole_file(F_UNLCK);
    (void)::fcntl(fd_.get(), F_OFD_SETLK, &lock);
  }
}

}  // namespace spdld
