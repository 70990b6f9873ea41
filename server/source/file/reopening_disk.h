// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "source/file/disk.h"

namespace spdld::source {

// The files below a root that may be renamed away, mounted late or replaced while it is in use:
// what is at the root's path counts. It is opened with the first file, and again when a file is
// missing, or after look_again(), if another directory is there by now.
//
// Owned by a FilesSource; thread-safe, as every Disk. A root that cannot be opened has no files:
// open() says ENOENT, or EACCES and why where it leads to what may not be read.
class ReopeningDisk final : public Disk {
 public:
  // A root that is open, and which directory that is.
  struct Opened {
    std::unique_ptr<Disk> disk;
    dev_t device = 0;
    ino_t inode = 0;
  };
  // Opens what is at `root` now.
  using OpenRoot = std::function<Result<Opened>()>;

  // `first`: what `open_root` has given by now; one without a disk: nothing yet. `remote`: a part
  // of what was listed lies on a network.
  ReopeningDisk(std::string root, bool remote, OpenRoot open_root, Opened first);

  int open(const std::string& uri, OpenFile& file) override;
  ssize_t read_cached(const OpenFile& file, std::span<std::byte> out,
                      std::uint64_t offset) override;
  ssize_t read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) override;
  Opening opening(const std::string& uri) const override;
  bool opening_blocks() const override;
  dev_t device() const override;

  // The next open() sees whether another directory is at the root's path. Touches no storage.
  void look_again() { look_.store(true, std::memory_order_relaxed); }

 private:
  // The root as it is now, where that is another directory than `seen` has; else null, with `err`
  // and `why` set where it may not be read.
  const Opened* reopened(const Opened* seen, int& err, std::string& why) SPDLD_EXCLUDES(mutex_);

  const std::string root_;
  const bool remote_;
  const OpenRoot open_root_;
  // Release and acquire: a thread that reads the pointer sees the whole Opened.
  std::atomic<const Opened*> current_ = nullptr;
  std::atomic<bool> look_ = false;  // relaxed: it says when to look, and what is seen has a lock
  Mutex mutex_;
  // Stay until the end, since others may be in each of them. Bounded: a root that is replaced again
  // and again is then read where it was last.
  static constexpr std::size_t kMostOpened = 64;
  std::vector<std::unique_ptr<const Opened>> opened_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::source
