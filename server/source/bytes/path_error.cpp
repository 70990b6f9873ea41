// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/path_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace spdld::source {
namespace {

constexpr int kMaxLinks = 8;

std::string link_target(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
  if (size <= 0) return {};
  const std::string text(target, static_cast<std::size_t>(size));
  return text[0] == '/' ? text : path.substr(0, path.rfind('/') + 1) + text;
}

// The first thing on the way to `path` that may not be passed, or read if it is the end; empty if
// none is found.
std::string first_closed(const std::string& path, int links_left) {
  if (path.empty() || path[0] != '/') return {};
  for (std::size_t end = 1; end <= path.size();) {
    const std::string prefix = path.substr(0, end);
    const bool last = end == path.size();
    struct stat info {};
    if (::stat(prefix.c_str(), &info) != 0) {
      // The way to it was open, so it is a link to somewhere closed.
      const std::string target = link_target(prefix);
      return target.empty() || links_left == 0 ? std::string()
                                               : first_closed(target, links_left - 1);
    }
    const int needed = (last ? R_OK : 0) | (S_ISDIR(info.st_mode) ? X_OK : 0);
    if (::faccessat(AT_FDCWD, prefix.c_str(), needed, AT_EACCESS) != 0) return prefix;
    if (last) break;
    end = std::min(path.find('/', end == 1 ? 1 : end + 1), path.size());
  }
  return {};
}

std::string way_in(const std::string& closed) {
  struct stat info {};
  if (::stat(closed.c_str(), &info) != 0) return {};
  const std::string uid = std::to_string(::geteuid());
  const bool directory = S_ISDIR(info.st_mode);
  const std::string rights = directory ? "rx" : "r";
  std::string text = ": " + closed + " is " + mode_text(info.st_mode) + " of uid " +
                     std::to_string(info.st_uid) + " and gid " + std::to_string(info.st_gid) +
                     ", and spdld runs as uid " + uid + "; let it in with 'setfacl -m u:" + uid +
                     ":" + rights + " " + closed + "' or 'chmod o+" + rights + " " + closed + "'";
  const mode_t needed = directory ? S_IRGRP | S_IXGRP : S_IRGRP;
  if ((info.st_mode & needed) == needed) {
    text += ", or add its user to group " + std::to_string(info.st_gid) + " and restart it";
  }
  return text;
}

}  // namespace

std::string mode_text(mode_t mode) {
  std::string text = S_ISDIR(mode) ? "d" : "-";
  for (int shift = 6; shift >= 0; shift -= 3) {
    text += (mode >> shift & 4) != 0 ? 'r' : '-';
    text += (mode >> shift & 2) != 0 ? 'w' : '-';
    text += (mode >> shift & 1) != 0 ? 'x' : '-';
  }
  return text;
}

Status path_error(int err, std::string_view what, const std::string& path) {
  Status status = errno_status(err, std::string(what) + " " + path);
  if (err != EACCES && err != EPERM) return status;
  const std::string closed = first_closed(path, kMaxLinks);
  return closed.empty() ? status : Status(status.code(), status.message() + way_in(closed));
}

}  // namespace spdld::source
