// SPDX-License-Identifier: Apache-2.0
#include "source/file/reopening_disk.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace spdld::source {

ReopeningDisk::ReopeningDisk(std::string root, bool remote, OpenRoot open_root, Opened first)
    : root_(std::move(root)), remote_(remote), open_root_(std::move(open_root)) {
  if (first.disk == nullptr) return;
  MutexLock lock(mutex_);
  opened_.push_back(std::make_unique<const Opened>(std::move(first)));
  current_.store(opened_.back().get(), std::memory_order_release);
}

int ReopeningDisk::open(const std::string& uri, OpenFile& file) {
  const Opened* opened = current_.load(std::memory_order_acquire);
  int err = ENOENT;
  if (look_.load(std::memory_order_relaxed) && look_.exchange(false, std::memory_order_relaxed)) {
    if (const Opened* const other = reopened(opened, err, file.why_not)) opened = other;
  }
  err = opened == nullptr ? err : opened->disk->open(uri, file);
  if (err != ENOENT && err != ENOTDIR && err != ESTALE) return err;
  const Opened* const again = reopened(opened, err, file.why_not);
  return again == nullptr ? err : again->disk->open(uri, file);
}

const ReopeningDisk::Opened* ReopeningDisk::reopened(const Opened* seen, int& err,
                                                     std::string& why) {
  MutexLock lock(mutex_);
  const Opened* const now = current_.load(std::memory_order_relaxed);
  if (now != seen) return now;  // another thread was first
  struct stat info {};
  if (opened_.size() == kMostOpened || ::stat(root_.c_str(), &info) != 0) return nullptr;
  if (now != nullptr && now->device == info.st_dev && now->inode == info.st_ino) return nullptr;
  Result<Opened> opened = open_root_();
  if (!opened) {
    if (opened.error().code() == Code::kPermissionDenied) {
      err = EACCES;
      why = opened.error().message();
    }
    return nullptr;
  }
  opened_.push_back(std::make_unique<const Opened>(*std::move(opened)));
  current_.store(opened_.back().get(), std::memory_order_release);
  return opened_.back().get();
}

ssize_t ReopeningDisk::read_cached(const OpenFile& file, std::span<std::byte> out,
                                   std::uint64_t offset) {
  // A file is open, and so is what it lies in.
  return current_.load(std::memory_order_acquire)->disk->read_cached(file, out, offset);
}

ssize_t ReopeningDisk::read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) {
  return current_.load(std::memory_order_acquire)->disk->read(file, out, offset);
}

Disk::Opening ReopeningDisk::opening(const std::string& uri) const {
  const Opened* const opened = current_.load(std::memory_order_acquire);
  // Without a root, or where it is to be looked for again, open() asks the file system for it.
  if (opened == nullptr || look_.load(std::memory_order_relaxed))
    return {.at_once = false, .device = device()};
  return opened->disk->opening(uri);
}

bool ReopeningDisk::opening_blocks() const {
  const Opened* const opened = current_.load(std::memory_order_acquire);
  return opened == nullptr ? remote_ : opened->disk->opening_blocks();
}

dev_t ReopeningDisk::device() const {
  const Opened* const opened = current_.load(std::memory_order_acquire);
  return opened == nullptr ? 0 : opened->device;
}

}  // namespace spdld::source
