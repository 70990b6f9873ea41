// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "source/access.h"
#include "source/source.h"

namespace spdld::source {

struct OpenFile {
  UniqueFd fd;
  std::uint64_t size_bytes = 0;
  dev_t device = 0;
};

// What a FilesSource asks of the operating system, as thin as can be: SystemDisk does it, and tests
// put one with faults around that. Thread-safe. Failures are errno values, from which the source
// tells what is worth a retry; EXDEV: the file lies where it may not be read; EISDIR: it is no
// regular file.
class Disk {
 public:
  virtual ~Disk() = default;

  // 0, or errno. May block only if opening_blocks().
  virtual int open(const std::string& uri, OpenFile& file) = 0;
  // What the page cache holds at `offset`, in bytes, or -errno; -EAGAIN: nothing. Never blocks.
  virtual ssize_t read_cached(const OpenFile& file, std::span<std::byte> out,
                              std::uint64_t offset) = 0;
  // Like pread(2), with -errno. May block.
  virtual ssize_t read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) = 0;

  // Whether open() may wait for a network, and the device to which that wait is charged.
  virtual bool opening_blocks() const = 0;
  virtual dev_t device() const = 0;
};

// The files below one directory. With symlinks not followed or with restricted roots the kernel is
// asked to stay beneath the root (openat2), and what leads out of it is compared with the roots
// after it was opened, so that nothing can be swapped in between.
class SystemDisk final : public Disk {
 public:
  SystemDisk(UniqueFd root, std::string root_path, Roots roots, bool follow_symlinks,
             bool opening_blocks, dev_t device);

  int open(const std::string& uri, OpenFile& file) override;
  ssize_t read_cached(const OpenFile& file, std::span<std::byte> out,
                      std::uint64_t offset) override;
  ssize_t read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) override;
  bool opening_blocks() const override { return opening_blocks_; }
  dev_t device() const override { return device_; }

 private:
  // A descriptor, or -errno.
  int open_beneath(const std::string& uri, int flags) const;
  int open_checked(const std::string& uri, int flags) const;

  const UniqueFd root_;
  const std::string root_path_;  // after symlinks
  const Roots roots_;
  const bool follow_symlinks_;
  const bool opening_blocks_;
  const dev_t device_;
  // Relaxed: a stale value costs one refused system call.
  std::atomic<bool> noatime_ = true;
};

// The open file's stamp as it is now, or nothing when that cannot be told.
std::optional<ItemStamp> stamp_of_fd(int fd);

// Whether no later change can leave the stamp as it is: a file changed twice within one tick of its
// file system's clock shows the first one's times, so these must lie behind. `now_ns` is the wall
// clock.
bool is_settled(const ItemStamp& stamp, std::int64_t now_ns);

// Where the descriptor's file is now, without symlinks; empty when that cannot be told.
std::string real_path_of_fd(int fd);

// Whether the file system of `fd` answers without a network. What is not known counts as remote.
bool is_local(int fd);

}  // namespace spdld::source
