// SPDX-License-Identifier: Apache-2.0
#include "source/file/held_files.h"

#include <sys/resource.h>

#include <atomic>
#include <utility>

namespace spdld::source {
namespace {

std::atomic<std::int64_t> held_in_all{0};  // relaxed: a bound that may be passed by some

std::int64_t most_held() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 1024;
  return static_cast<std::int64_t>(limit.rlim_cur / 4);
}

}  // namespace

HeldFiles::Held::~Held() {
  if (counts) held_in_all.fetch_sub(1, std::memory_order_relaxed);
}

HeldFiles::HeldPtr HeldFiles::open(const FileRange& range, Disk& disk) {
  if (!disk.opening(range.uri).at_once) return nullptr;
  auto held = std::make_shared<Held>();
  if (disk.open(range.uri, held->file) != 0) return nullptr;
  const auto stamp = stamp_of_fd(held->file.fd.get());
  if (!stamp) return nullptr;
  held->stamp = *stamp;
  held->counts = held_in_all.fetch_add(1, std::memory_order_relaxed) < most_held();
  if (!held->counts) held_in_all.fetch_sub(1, std::memory_order_relaxed);
  return held;
}

HeldFiles::HeldPtr HeldFiles::get(const FileRange& range, Disk& disk) {
  const std::uint64_t number = range.expected->number;
  const Time now = std::chrono::steady_clock::now();
  {
    MutexLock lock(mutex_);
    const auto found = entries_.find(number);
    if (found != entries_.end() && now - found->second.looked < kLook) {
      found->second.used = now;
      return found->second.held;
    }
  }
  HeldPtr opened = open(range, disk);
  HeldPtr unused;  // closed under no lock
  MutexLock lock(mutex_);
  Entry& entry = entries_[number];
  unused = std::exchange(entry.held, opened);
  entry.looked = entry.used = now;
  if (opened == nullptr || !opened->counts) {
    entries_.erase(number);
  } else if (unused != nullptr && unused->stamp == opened->stamp) {
    std::swap(unused, entry.held);  // the same file: what was read of it stays good
  }
  std::erase_if(entries_, [now](const auto& each) { return now - each.second.used > kUnused; });
  return opened;
}

}  // namespace spdld::source
