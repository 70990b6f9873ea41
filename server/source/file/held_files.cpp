// SPDX-License-Identifier: Apache-2.0
#include "source/file/held_files.h"

#include <sys/resource.h>

#include <atomic>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace spdld::source {
namespace {

std::atomic<std::int64_t> held_in_all{0};  // relaxed: a bound that may be passed by some

std::int64_t most_held() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 1024;
  return static_cast<std::int64_t>(limit.rlim_cur / 4);
}

}  // namespace

// Looks for files to close, in the pool and without a thread between two looks, for as long as any
// is held.
class HeldFiles::Closer final : public IoTask {
 public:
  explicit Closer(std::weak_ptr<HeldFiles> files) : files_(std::move(files)) {}

  std::optional<std::chrono::nanoseconds> run() override {
    const std::shared_ptr<HeldFiles> files = files_.lock();
    try {
      if (files == nullptr || !files->close_unused()) return std::nullopt;
    } catch (const std::bad_alloc&) {  // they stay until the next look
    }
    return files->unused_;
  }
  void cancel() override {}

 private:
  const std::weak_ptr<HeldFiles> files_;
};

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
  held->file.size_bytes = stamp->size_bytes;  // it may have grown since the open
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
  HeldPtr closed;  // under no lock
  bool wants_closer = false;
  {
    MutexLock lock(mutex_);
    Entry& entry = entries_[number];
    entry.looked = entry.used = now;
    // The same file goes on being held, also where no more files may be.
    if (opened == nullptr || entry.held == nullptr || entry.held->stamp != opened->stamp) {
      closed = std::exchange(entry.held, opened);
      if (opened == nullptr || !opened->counts) entries_.erase(number);
    }
    wants_closer = !entries_.empty() && !std::exchange(has_closer_, true);
  }
  if (wants_closer && !start_closer()) {
    MutexLock lock(mutex_);
    has_closer_ = false;
  }
  return opened;
}

bool HeldFiles::start_closer() {
  try {
    return io_.submit(0, std::make_shared<Closer>(weak_from_this())).ok();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool HeldFiles::close_unused() {
  const Time now = std::chrono::steady_clock::now();
  std::vector<HeldPtr> closed;  // under no lock
  MutexLock lock(mutex_);
  for (auto next = entries_.begin(); next != entries_.end();) {
    const auto entry = next++;
    if (now - entry->second.used < unused_) continue;
    closed.push_back(std::move(entry->second.held));
    entries_.erase(entry);
  }
  has_closer_ = !entries_.empty();
  return has_closer_;
}

}  // namespace spdld::source
