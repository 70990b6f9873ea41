// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "posix/unique_fd.h"
#include "source/file/access.h"
#include "source/item/source.h"

namespace spdld::source {

struct OpenFile {
  UniqueFd fd;
  std::uint64_t size_bytes = 0;
  dev_t device = 0;
  std::string why_not = {};  // it was not opened, where the reason is no failed system call
};

// Disk opens and reads the files below one root, by the thinnest calls that do. SystemDisk is the
// operating system's; ReopeningDisk finds the root again when another directory takes its place;
// tests have disks with faults.
//
// Owned by a RangeReader; thread-safe. Failures are errno values, from which RangeReader tells what
// is worth a retry; EXDEV: the file lies where it may not be read; EISDIR: it is no regular file.
class Disk {
 public:
  virtual ~Disk() = default;

  // 0, or errno. May block only if opening_blocks().
  virtual int open(const std::string& uri, OpenFile& file) = 0;
  // What the page cache holds at `offset`, in bytes, or -errno. Never blocks. Before the file's end
  // 0 means the same as is_uncached(): some kernels answer so.
  virtual ssize_t read_cached(const OpenFile& file, std::span<std::byte> out,
                              std::uint64_t offset) = 0;
  // Whether read_cached() gave nothing that read() may have: the page cache does not hold it
  // (EAGAIN), or this file system cannot tell.
  static bool is_uncached(ssize_t count) {
    return count == -EAGAIN || count == -EOPNOTSUPP || count == -ENOSYS || count == -EINVAL;
  }
  // Like pread(2), with -errno. May block.
  virtual ssize_t read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) = 0;

  // What an open() of this file would be. Never blocks.
  struct Opening {
    bool at_once = false;  // it waits for nothing
    dev_t device = 0;      // to which the wait is charged
  };
  virtual Opening opening(const std::string& uri) const {
    (void)uri;
    return {.at_once = !opening_blocks(), .device = device()};
  }
  // Whether any open() may wait for a network, and the device that files lie on if nothing else is
  // known of them.
  virtual bool opening_blocks() const = 0;
  virtual dev_t device() const = 0;
};

// The files below one directory, as far as `access` lets its reader have them.
class SystemDisk final : public Disk {
 public:
  // `root` was opened by `access`.
  SystemDisk(UniqueFd root, std::shared_ptr<const Access> access, Access::Links links,
             bool opening_blocks, dev_t device);

  int open(const std::string& uri, OpenFile& file) override;
  ssize_t read_cached(const OpenFile& file, std::span<std::byte> out,
                      std::uint64_t offset) override;
  ssize_t read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) override;
  // At once is what the kernel's cache of names leads to, on devices known to be of this machine.
  Opening opening(const std::string& uri) const override;
  bool opening_blocks() const override { return opening_blocks_; }
  dev_t device() const override { return device_; }

 private:
  const UniqueFd root_;
  const std::shared_ptr<const Access> access_;
  const Access::Links links_;
  const bool opening_blocks_;
  const dev_t device_;
  // Relaxed: a stale value costs one refused system call.
  bool is_known_local(dev_t device) const;
  void learn(const OpenFile& file);

  // Other devices than device_ that links have led to and that are of this machine; 0: none yet.
  // Relaxed, as the next one is: each number stands alone.
  static constexpr std::size_t kMostDevices = 16;
  std::array<std::atomic<dev_t>, kMostDevices> local_devices_{};
  mutable std::atomic<bool> no_cached_lookups_{false};  // the kernel cannot tell
  std::atomic<bool> noatime_ = true;
};

ItemStamp stamp_of(const struct stat& info);
// The open file's stamp as it is now, or nothing when that cannot be told.
std::optional<ItemStamp> stamp_of_fd(int fd);

// Whether a file still has the stamp that it was indexed with: then it has that content, too.
// Devices may have other numbers after a restart of the machine.
bool is_as_indexed(ItemStamp now, const ItemStamp& indexed);

// Whether no later change can leave the stamp as it is: a file changed twice within one tick of its
// file system's clock shows the first one's times, so these must lie behind. `now_ns` is the wall
// clock.
bool is_settled(const ItemStamp& stamp, std::int64_t now_ns);

// Whether a device that Opening tells of is none of the system's: it stands for what links of a
// dataset lead to, of which no more is known.
bool is_elsewhere(dev_t device);

// Whether the file system of `fd` answers without a network. What is not known counts as remote.
bool is_local(int fd);

}  // namespace spdld::source
