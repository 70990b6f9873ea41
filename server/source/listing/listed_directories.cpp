// SPDX-License-Identifier: Apache-2.0
#include "source/listing/listed_directories.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "source/file/disk.h"

namespace spdld::source {
namespace {

constexpr std::int64_t kCoarseNs = 2'000'000'000;  // what a time stamp may lag behind

std::string below_root(const std::string& path) { return path.empty() ? "." : path; }

// Calls `look` with each directory of the listing, from several threads, until it says false.
void for_each_directory(const Listing& listing, int threads,
                        const std::function<bool(const DirectoryStamp&)>& look) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> enough = false;
  const auto work = [&] {
    for (std::size_t i = next++; i < listing.stamps.size() && !enough; i = next++) {
      if (!look(listing.stamps[i])) enough = true;
    }
  };
  std::vector<std::jthread> workers;
  const auto wanted = std::min<std::size_t>(static_cast<std::size_t>(std::max(1, threads)),
                                            listing.stamps.size() / 64 + 1);
  for (std::size_t i = 1; i < wanted; ++i)
    workers.emplace_back([&work] {
      ::pthread_setname_np(::pthread_self(), "spdld-walk");
      work();
    });
  work();
}

bool differs(int root_fd, const Listing& listing, int threads, std::int64_t trusted_before_ns) {
  std::atomic<bool> changed = false;
  for_each_directory(listing, threads, [&](const DirectoryStamp& stamp) {
    struct stat info {};
    if (stamp.mtime_ns > trusted_before_ns ||
        ::fstatat(root_fd, below_root(stamp.path).c_str(), &info, 0) != 0 ||
        !S_ISDIR(info.st_mode) || directory_stamp(stamp.path, info) != stamp) {
      changed = true;
    }
    return !changed;
  });
  return changed;
}

}  // namespace

DirectoryStamp directory_stamp(std::string path, const struct stat& info) {
  const ItemStamp stamp = stamp_of(info);
  return {.path = std::move(path),
          .inode = stamp.inode,
          .mtime_ns = stamp.mtime_ns,
          .ctime_ns = stamp.ctime_ns};
}

bool is_unchanged(int root_fd, const Listing& listing, int threads) {
  return !differs(root_fd, listing, threads, listing.listed_at_ns - kCoarseNs);
}

bool has_changed(int root_fd, const Listing& listing, int threads) {
  return differs(root_fd, listing, threads, std::numeric_limits<std::int64_t>::max());
}

Status may_list(int root_fd, const std::string& root, const Listing& listing, const Access& access,
                Access::Links links, int threads) {
  if (!access.is_checked()) return {};
  Mutex mutex;
  Status first;
  for_each_directory(listing, threads, [&](const DirectoryStamp& stamp) {
    Access::Opened opened;
    const Denial denial = access.open(root_fd, below_root(stamp.path), links,
                                      O_PATH | O_DIRECTORY | O_CLOEXEC, opened);
    // A directory that is gone has nothing to be read; its files are missed one by one.
    if (Access::is_open_or_gone(denial)) return true;
    MutexLock lock(mutex);
    first =
        Access::status(denial, "cannot list",
                       stamp.path.empty() ? root : (root == "/" ? "" : root) + "/" + stamp.path);
    return false;
  });
  return first;
}

}  // namespace spdld::source
