// SPDX-License-Identifier: Apache-2.0
#include "source/file/access.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "source/bytes/path_error.h"

namespace spdld::source {
namespace {

constexpr int kPathFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
constexpr int kMostLinks = 40;  // as the kernel has it
constexpr std::size_t kLongestWay = 65536;
constexpr std::uint64_t kNoFileSystem = ~std::uint64_t{0};

bool has_one_of(const Credentials& user, const std::vector<gid_t>& groups) {
  return std::any_of(groups.begin(), groups.end(),
                     [&user](gid_t group) { return user.in_group(group); });
}

Denial system_error(int err) { return {.err = err}; }

std::string joined(const std::string& directory, const std::string& name) {
  return directory == "/" ? "/" + name : directory + "/" + name;
}

// Takes the first name off `way`; "." where there is none.
std::string next_name(std::string& way) {
  const std::size_t begin = std::min(way.find_first_not_of('/'), way.size());
  const std::size_t end = std::min(way.find('/', begin), way.size());
  std::string name = way.substr(begin, end - begin);
  way.erase(0, end);
  if (way.find_first_not_of('/') == std::string::npos) way.clear();
  return name.empty() ? "." : name;
}

// Opens `path` below `directory`. The kernel refuses a path that leaves the directory or its file
// system, or that has a link in it. Returns -errno on refusal, or where openat2 is not known.
int open_beneath(int directory, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
  const long fd = ::syscall(SYS_openat2, directory, path.c_str(), &how, sizeof how);
  return fd >= 0 ? static_cast<int>(fd) : -errno;
}

// The reader without the uid that every container's root has, and the gid of most other users
// there.
Credentials without_root(Credentials reader) {
  if (reader.uid == 0) reader.uid = Credentials::kUnmapped;
  if (reader.gid == 0) reader.gid = Credentials::kUnmapped;
  std::erase(reader.groups, gid_t{0});
  return reader;
}

// Another descriptor of what `fd`, opened with O_PATH, is.
int reopen(int fd, int flags) { return ::open(path_by_fd(fd).c_str(), flags); }

}  // namespace

bool is_beneath(std::string_view real_path, std::string_view real_directory) {
  if (real_directory == "/") return real_path.starts_with('/');
  return real_path.starts_with(real_directory) &&
         (real_path.size() == real_directory.size() || real_path[real_directory.size()] == '/');
}

std::string path_by_fd(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

std::string real_path_of_fd(int fd) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink(path_by_fd(fd).c_str(), path, sizeof path);
  return size > 0 && path[0] == '/' ? std::string(path, static_cast<std::size_t>(size))
                                    : std::string();
}

bool AccessRules::trusts(const Credentials& reader) const {
  if (reader.uid == 0) return trust_root;
  return reader.uid == Credentials::kDaemon || reader.is_user(::geteuid());
}

Credentials AccessRules::normalized(Credentials reader) const {
  return trusts(reader) ? Credentials{.uid = reader.uid} : std::move(reader);
}

Access::Access(const AccessRules& rules, Credentials reader)
    : reader_(std::move(reader)),
      checked_(!rules.trusts(reader_)),
      is_untrusted_root_(checked_ && reader_.uid == 0),
      compared_(rules.trust_root ? reader_ : without_root(reader_)),
      last_kind_(kNoFileSystem) {
  for (const AccessRoot& root : rules.roots) {
    roots_text_ += (roots_text_.empty() ? "" : ", ") + root.path;
    const UniqueFd fd(::open(root.path.c_str(), O_PATH | O_CLOEXEC));
    std::string real = fd ? real_path_of_fd(fd.get()) : std::string();
    if (real.empty()) continue;
    unrestricted_ = unrestricted_ || real == "/";
    roots_.push_back(
        {.path = std::move(real), .widened = checked_ && has_one_of(compared_, root.groups)});
  }
  struct stat info {};
  for (const std::string& path : rules.own_directories) {
    if (::stat(path.c_str(), &info) == 0)
      own_.push_back({.device = info.st_dev, .inode = info.st_ino, .path = path});
  }
  struct stat root {};
  if (::stat("/dev", &info) == 0 && ::stat("/", &root) == 0 && info.st_dev != root.st_dev)
    devices_ = info.st_dev;
}

const Access::FileId* Access::own(const struct stat& info) const {
  const auto found = std::find_if(own_.begin(), own_.end(), [&info](const FileId& directory) {
    return directory.inode == info.st_ino && directory.device == info.st_dev;
  });
  return found == own_.end() ? nullptr : &*found;
}

RightsKind Access::kind_of(int fd, dev_t device) const {
  const std::uint64_t last = last_kind_.load(std::memory_order_relaxed);
  if (last != kNoFileSystem && last >> 2 == device) return static_cast<RightsKind>(last & 3);
  const RightsKind kind =
      device == devices_ && devices_ != 0 ? RightsKind::kNever : rights_kind(fd);
  last_kind_.store(std::uint64_t{device} << 2 | static_cast<std::uint64_t>(kind),
                   std::memory_order_relaxed);
  return kind;
}

bool Access::widened(std::string_view real_path) const {
  return std::any_of(roots_.begin(), roots_.end(), [real_path](const Root& root) {
    return root.widened && is_beneath(real_path, root.path);
  });
}

bool Access::allows(unsigned wanted, int fd, const struct stat& info) const {
  if (!checked_) return true;
  if (kind_of(fd, info.st_dev) == RightsKind::kModes)
    return may_by_modes(compared_, wanted, fd, info);
  return (info.st_mode & wanted) == wanted;
}

Denial Access::outside(const std::string& real_path) const {
  return {.err = EXDEV,
          .why = (real_path.empty() ? "where it lies cannot be told (is /proc mounted?), and only"
                                    : "it leads to " + real_path + ", which") +
                 " lies below none of access.roots (" + roots_text_ +
                 "); add its directory to access.roots in the daemon's configuration"};
}

Denial Access::denied(unsigned wanted, int fd, const struct stat& info) const {
  const bool pass_only = wanted == kMayPass;
  const std::string where = real_path_of_fd(fd);
  std::string why = reader_.text() + ", with whose rights it is read, may not " +
                    (pass_only ? "pass " : "read ") + where + ", which is " +
                    mode_text(info.st_mode) + " of uid " + std::to_string(info.st_uid) +
                    " and gid " + std::to_string(info.st_gid);
  if (kind_of(fd, info.st_dev) != RightsKind::kModes)
    why +=
        " on a file system whose other rules spdld cannot read, so that what everybody may is "
        "all that counts";
  if (is_untrusted_root_)
    why +=
        "; access.trust_root is false, so that uid 0 and gid 0 are no owner and no group of "
        "anything";
  return {.err = EACCES,
          .why = why +
                 "; ask its owner for access, or an administrator to list a group of yours "
                 "under access.roots in the daemon's configuration"};
}

Denial Access::is_own(const FileId& directory) {
  return {
      .err = EACCES,
      .reserved = true,
      .why = directory.path +
             " is a directory of spdld's own, and no pipeline may read below it; move the data"};
}

Denial Access::may_pass(int directory, const std::string& name) const {
  struct stat info {};
  if (::fstat(directory, &info) != 0) return system_error(errno);
  if (const FileId* found = own(info)) return is_own(*found);
  if (allows(kMayPass, directory, info)) return {};
  // A root that an administrator opened to a group is open however one comes there.
  const std::string here = real_path_of_fd(directory);
  const std::string next = joined(here, name);
  const bool leads_there =
      widened(here) || std::any_of(roots_.begin(), roots_.end(), [&next](const Root& root) {
        return root.widened && is_beneath(root.path, next);
      });
  return leads_there ? Denial() : denied(kMayPass, directory, info);
}

Denial Access::go(int directory, const std::string& path, Links links, bool wants_directory,
                  Opened& found) const {
  std::string way = path;
  bool absolute = path.starts_with('/');
  int links_left = links == Links::kFollow ? kMostLinks : 0;
  UniqueFd held;
  int at = directory;
  while (true) {
    if (std::exchange(absolute, false)) {
      held = UniqueFd(::open("/", kPathFlags | O_DIRECTORY));
      if (!held) return system_error(errno);
      at = held.get();
    }
    const bool ends_in_slash = way.ends_with('/');
    const std::string name = next_name(way);
    const bool last = way.empty();
    if (Denial denial = may_pass(at, name); denial.err != 0) return denial;
    const bool directory_here = !last || wants_directory || ends_in_slash;
    // O_DIRECTORY: an automounter mounts what is asked for as a directory, and not for O_PATH
    // alone.
    UniqueFd fd(::openat(at, name.c_str(), kPathFlags | (directory_here ? O_DIRECTORY : 0)));
    if (!fd && directory_here && (errno == ENOTDIR || errno == ELOOP))
      fd = UniqueFd(::openat(at, name.c_str(), kPathFlags));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0) return system_error(errno);
    if (S_ISLNK(info.st_mode)) {
      if (links_left-- == 0) return system_error(ELOOP);
      char target[PATH_MAX];
      const ssize_t size = ::readlinkat(fd.get(), "", target, sizeof target);
      if (size <= 0) return system_error(size < 0 ? errno : ENOENT);
      if (last && ends_in_slash) way = "/";
      way.insert(0, target, static_cast<std::size_t>(size));
      if (way.size() > kLongestWay) return system_error(ENAMETOOLONG);
      absolute = way.starts_with('/');
      continue;
    }
    if (directory_here && !S_ISDIR(info.st_mode)) return system_error(ENOTDIR);
    if (last) {
      found = {std::move(fd), info};
      return {};
    }
    held = std::move(fd);
    at = held.get();
  }
}

Denial Access::may_open(int fd, const struct stat& info, unsigned wanted) const {
  if (const FileId* found = S_ISDIR(info.st_mode) ? own(info) : nullptr) return is_own(*found);
  if (kind_of(fd, info.st_dev) == RightsKind::kNever)
    return {.err = EACCES,
            .reserved = true,
            .why = "it belongs to the kernel or its devices, and no pipeline may read there"};
  const bool allowed = allows(wanted, fd, info);
  if (allowed && unrestricted_) return {};
  const std::string real = real_path_of_fd(fd);
  const auto inside = [&real](const Root& root) { return is_beneath(real, root.path); };
  if (std::none_of(roots_.begin(), roots_.end(), inside)) return outside(real);
  return allowed || widened(real) ? Denial() : denied(wanted, fd, info);
}

// Takes what open_beneath() has opened. Without links in its path it lies below the same root as
// the directory that it was opened from. None of the daemon's own directories is on the way: no
// listing names them, and only root and the daemon's user can move one to a listed path.
Denial Access::take(int fd, bool is_directory, Opened& opened) const {
  Opened found{.fd = UniqueFd(fd)};
  if (::fstat(fd, &found.info) != 0) return system_error(errno);
  if (!is_directory && !S_ISREG(found.info.st_mode)) return system_error(EISDIR);
  Denial denial = is_directory ? may_open(fd, found.info, 0) : Denial();
  if (denial.err == 0) opened = std::move(found);
  return denial;
}

Denial Access::open(int directory, const std::string& path, Links links, int flags,
                    Opened& opened) const {
  const bool wants_directory = (flags & O_DIRECTORY) != 0;
  if (!checked_ && !path.starts_with('/')) {
    const int fd = open_beneath(directory, path, flags);
    if (fd >= 0) return take(fd, wants_directory, opened);
    // EXDEV, and ELOOP for a link: it may lead out, which the roots may allow. EAGAIN: something
    // was renamed meanwhile. ENOSYS, EPERM: an old kernel, or a sandbox that knows no openat2.
    const bool goes_on = fd == -EXDEV || (fd == -ELOOP && links == Links::kFollow) ||
                         fd == -EAGAIN || fd == -ENOSYS || fd == -EPERM;
    if (!goes_on) return system_error(-fd);
  }
  Opened found;
  if (Denial denial = go(directory, path, links, wants_directory, found); denial.err != 0)
    return denial;
  if (!wants_directory && !S_ISREG(found.info.st_mode)) return system_error(EISDIR);
  if ((flags & O_PATH) == 0) {
    UniqueFd readable(reopen(found.fd.get(), flags));
    if (!readable || ::fstat(readable.get(), &found.info) != 0) return system_error(errno);
    found.fd = std::move(readable);
  }
  Denial denial =
      may_open(found.fd.get(), found.info, wants_directory ? kMayRead | kMayPass : kMayRead);
  if (denial.err == 0) opened = std::move(found);
  return denial;
}

Result<Access::Opened> Access::open(const std::string& path, int flags,
                                    std::string_view what) const {
  Opened opened;
  const Denial denial = open(AT_FDCWD, path, Links::kFollow, flags, opened);
  if (denial.err == EISDIR) return error(Code::kInvalidArgument, path + " is no regular file");
  if (denial.err != 0) return tl::unexpected(status(denial, what, path));
  return opened;
}

Denial Access::look(int directory, const std::string& path, struct stat& info) const {
  Opened found;
  Denial denial = go(directory, path, Links::kFollow, false, found);
  info = found.info;
  return denial;
}

bool Access::is_open_or_gone(const Denial& denial) {
  const bool is_gone =
      denial.err == ENOENT || denial.err == ENOTDIR || denial.err == ELOOP || denial.err == ESTALE;
  return denial.err == 0 || (denial.why.empty() && is_gone);
}

Status Access::status(const Denial& denial, std::string_view what, const std::string& path) {
  if (denial.why.empty()) return path_error(denial.err, what, path);
  return Status(Code::kPermissionDenied, std::string(what) + " " + path + ": " + denial.why);
}

}  // namespace spdld::source
