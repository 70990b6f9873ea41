// SPDX-License-Identifier: Apache-2.0
#include "source/file/disk.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/failpoint.h"

namespace spdld::source {
namespace {

// Elsewhere than what lies on the root's device, by a link of which no more is known.
constexpr dev_t kElsewhere = dev_t{1} << 63;

constexpr unsigned kXfsMagic = 0x58465342;
constexpr unsigned kZfsMagic = 0x2fc12fc1;
constexpr unsigned kBcachefsMagic = 0xca451a4e;

// O_NONBLOCK: a pipe that took a file's place must not keep the opener waiting.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

constexpr std::int64_t kSecondNs = 1'000'000'000;
// A tick of the kernel's clock is 10 ms at most; some file systems keep even seconds only.
constexpr std::int64_t kFineTickNs = 100'000'000;
constexpr std::int64_t kCoarseTickNs = 2 * kSecondNs;

constexpr std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * kSecondNs + time.tv_nsec;
}

}  // namespace

ItemStamp stamp_of(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size_bytes = static_cast<std::uint64_t>(info.st_size),
          .mtime_ns = nanoseconds(info.st_mtim),
          .ctime_ns = nanoseconds(info.st_ctim)};
}

std::optional<ItemStamp> stamp_of_fd(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return std::nullopt;
  return stamp_of(info);
}

bool is_as_indexed(ItemStamp now, const ItemStamp& indexed) {
  now.device = indexed.device;
  return now == indexed;
}

bool is_settled(const ItemStamp& stamp, std::int64_t now_ns) {
  const bool fine = stamp.mtime_ns % kSecondNs != 0 && stamp.ctime_ns % kSecondNs != 0;
  return std::max(stamp.mtime_ns, stamp.ctime_ns) < now_ns - (fine ? kFineTickNs : kCoarseTickNs);
}

bool is_elsewhere(dev_t device) { return (device & kElsewhere) != 0; }

bool is_local(int fd) {
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return false;
  constexpr std::array<unsigned, 13> kLocal{
      EXT4_SUPER_MAGIC,      kXfsMagic,        BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
      RAMFS_MAGIC,           F2FS_SUPER_MAGIC, kZfsMagic,         SQUASHFS_MAGIC,
      OVERLAYFS_SUPER_MAGIC, kBcachefsMagic,   ISOFS_SUPER_MAGIC, EROFS_SUPER_MAGIC_V1,
      MSDOS_SUPER_MAGIC};
  return std::find(kLocal.begin(), kLocal.end(), static_cast<unsigned>(info.f_type)) !=
         kLocal.end();
}

SystemDisk::SystemDisk(UniqueFd root, std::shared_ptr<const Access> access, Access::Links links,
                       bool opening_blocks, dev_t device)
    : root_(std::move(root)),
      access_(std::move(access)),
      links_(links),
      opening_blocks_(opening_blocks),
      device_(device) {}

int SystemDisk::open(const std::string& uri, OpenFile& file) {
  if (const int err = SPDLD_FAILPOINT_ERRNO("source.file.open"); err != 0) return err;
  const bool noatime = noatime_.load(std::memory_order_relaxed);
  Access::Opened opened;
  Denial denial =
      access_->open(root_.get(), uri, links_, kOpenFlags | (noatime ? O_NOATIME : 0), opened);
  if (denial.err == EPERM && noatime) {
    // Only the owner may ask for it.
    denial = access_->open(root_.get(), uri, links_, kOpenFlags, opened);
    if (denial.err == 0) noatime_.store(false, std::memory_order_relaxed);
  }
  if (denial.err != 0) {
    file.why_not = std::move(denial.why);
    return denial.err;
  }
  file.fd = std::move(opened.fd);
  file.size_bytes = static_cast<std::uint64_t>(opened.info.st_size);
  file.device = opened.info.st_dev;
  learn(file);
  return 0;
}

Disk::Opening SystemDisk::opening(const std::string& uri) const {
  if (opening_blocks_) return {.at_once = false, .device = device_};
  if (no_cached_lookups_.load(std::memory_order_relaxed))
    return {.at_once = false, .device = device_};
  const auto look = [&](std::uint64_t resolve) {
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_CACHED | resolve;
    return UniqueFd(
        static_cast<int>(::syscall(SYS_openat2, root_.get(), uri.c_str(), &how, sizeof how)));
  };
  if (look(RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS))
    return {.at_once = true, .device = device_};
  if (errno == ENOSYS || errno == EINVAL || errno == EPERM) {
    no_cached_lookups_.store(true, std::memory_order_relaxed);
    return {.at_once = false, .device = device_};
  }
  if (errno != ELOOP && errno != EXDEV) return {.at_once = false, .device = device_};
  const UniqueFd target = look(0);
  struct statx info {};
  if (!target || ::statx(target.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &info) != 0)
    return {.at_once = false, .device = device_ ^ kElsewhere};
  const dev_t device = makedev(info.stx_dev_major, info.stx_dev_minor);
  return {.at_once = is_known_local(device), .device = device};
}

bool SystemDisk::is_known_local(dev_t device) const {
  return device == device_ ||
         std::any_of(local_devices_.begin(), local_devices_.end(), [device](const auto& known) {
           return known.load(std::memory_order_relaxed) == device;
         });
}

void SystemDisk::learn(const OpenFile& file) {
  if (is_known_local(file.device) || !is_local(file.fd.get())) return;
  for (std::atomic<dev_t>& known : local_devices_) {
    dev_t none = 0;
    if (known.compare_exchange_strong(none, file.device, std::memory_order_relaxed)) return;
    if (none == file.device) return;
  }
}

ssize_t SystemDisk::read_cached(const OpenFile& file, std::span<std::byte> out,
                                std::uint64_t offset) {
  if (const int err = SPDLD_FAILPOINT_ERRNO("source.file.read"); err != 0) return -err;
  const iovec part{out.data(), out.size()};
  const ssize_t count = ::preadv2(file.fd.get(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  return count >= 0 ? count : -errno;
}

ssize_t SystemDisk::read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) {
  if (const int err = SPDLD_FAILPOINT_ERRNO("source.file.read"); err != 0) return -err;
  for (;;) {
    const ssize_t count =
        ::pread(file.fd.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (count >= 0) return count;
    if (errno != EINTR) return -errno;
  }
}

}  // namespace spdld::source
