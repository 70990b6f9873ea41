// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/users/credentials.h"
#include "posix/unique_fd.h"
#include "source/file/rights.h"

namespace spdld::source {

// A directory below which pipelines may read, as it is after symlinks.
struct AccessRoot {
  std::string path;
  // Their members may read all that lies below it, whatever modes and ACLs say.
  std::vector<gid_t> groups = {};
};

// What an administrator has said about reading.
struct AccessRules {
  std::vector<AccessRoot> roots = {{"/"}};
  // The daemon's own: nobody reads what lies below them.
  std::vector<std::string> own_directories = {};
  // Whether root's rights are not compared. Else uid 0 and gid 0 prove nothing, as every container
  // has them: they match no owner and no group, also where the daemon runs as root.
  bool trust_root = true;

  // Whether the reader's rights are not compared: the daemon itself, its own user, and root.
  bool trusts(const Credentials& reader) const;
  // Without the groups of a trusted reader, so that readers who may read the same are equal.
  Credentials normalized(Credentials reader) const;
};

// Why a path was not opened.
struct Denial {
  int err = 0;            // as errno has it; 0: it was opened
  bool reserved = false;  // it is the daemon's own, or the kernel's: nobody reads it
  std::string why = {};   // what Access has against it; empty: the system call failed
};

// What one user may read through the daemon. The daemon opens with its own rights, and hands out
// only what the user could have opened, too: it goes from directory to directory as the kernel
// would, compares what it holds open with the user's credentials, and asks the kernel where that
// lies. So nothing can be exchanged between the check and the use. Never opened, whoever asks, is
// what lies below the daemon's own directories, in procfs, sysfs and their like, and devices.
//
// The rights of those whom the rules trust are not compared. Immutable but for a memory of the last
// file system; any thread; shared by a source and its disk.
class Access {
 public:
  // Of the roots and own directories, those that do not exist now let nothing in and keep nothing
  // out, as long as this lives.
  Access(const AccessRules& rules, Credentials reader);
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  const Credentials& reader() const { return reader_; }
  // Whether the reader's rights are compared.
  bool is_checked() const { return checked_; }
  // The reader of what the daemon reads of its own accord, whose rights are not compared.
  static Credentials trusted() { return {.uid = Credentials::kDaemon}; }

  enum class Links { kFollow, kRefuse };
  struct Opened {
    UniqueFd fd;
    struct stat info {};
  };
  // Opens `path`: absolute, or relative to `directory`, which Access has opened. With O_DIRECTORY
  // in `flags` a directory that the reader may list and pass, else a regular file that it may read
  // (EISDIR: it is something else). EXDEV: it lies below none of the roots.
  Denial open(int directory, const std::string& path, Links links, int flags, Opened& opened) const;
  // The same of an absolute path, through links, with the error to show.
  Result<Opened> open(const std::string& path, int flags, std::string_view what) const;
  // What `path` leads to through links, if the reader may go there; nothing is opened for reading.
  Denial look(int directory, const std::string& path, struct stat& info) const;

  // Whether what was opened may be read, or is not there any more; whatever else kept it from being
  // opened may hide that it must not be read.
  static bool is_open_or_gone(const Denial& denial);

  // "what PATH: why; what to do"
  static Status status(const Denial& denial, std::string_view what, const std::string& path);

 private:
  struct Root {
    std::string path;      // after symlinks
    bool widened = false;  // for this reader
  };
  struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    std::string path = {};
  };

  // Goes to `path` name by name; what it finds is opened with O_PATH.
  Denial go(int directory, const std::string& path, Links links, bool wants_directory,
            Opened& found) const;
  Denial may_pass(int directory, const std::string& name) const;
  Denial take(int fd, bool is_directory, Opened& opened) const;
  Denial may_open(int fd, const struct stat& info, unsigned wanted) const;
  bool allows(unsigned wanted, int fd, const struct stat& info) const;
  bool widened(std::string_view real_path) const;
  const FileId* own(const struct stat& info) const;
  RightsKind kind_of(int fd, dev_t device) const;
  static Denial is_own(const FileId& directory);
  Denial outside(const std::string& real_path) const;
  Denial denied(unsigned wanted, int fd, const struct stat& info) const;

  const Credentials reader_;
  const bool checked_;
  const bool is_untrusted_root_;
  const Credentials compared_;  // the reader, as owners and groups are compared with it
  std::vector<Root> roots_;
  std::string roots_text_;
  bool unrestricted_ = false;
  std::vector<FileId> own_;
  dev_t devices_ = 0;  // of the file system at /dev, if that is one of its own
  // Of the last file system that was asked for: the device, and in the last two bits its kind.
  // Relaxed: it stands alone.
  mutable std::atomic<std::uint64_t> last_kind_;
};

// Whether `real_path` is `real_directory` or lies below it.
bool is_beneath(std::string_view real_path, std::string_view real_directory);

// A path by which system calls that take no descriptor, or none of O_PATH, reach `fd`'s file.
std::string path_by_fd(int fd);

// Where the descriptor's file is now, without symlinks; empty when that cannot be told.
std::string real_path_of_fd(int fd);

}  // namespace spdld::source
