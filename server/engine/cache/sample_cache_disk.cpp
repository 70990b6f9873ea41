// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_cache_disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace spdld::engine {
namespace {

constexpr mode_t kOwnersOnly = 0700;

dev_t device_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? info.st_dev : 0;
}

// A file that reaches RLIMIT_FSIZE sends a signal to the thread, whose default is to end the
// process; blocked, it is the error EFBIG alone.
void expect_size_limit() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

Status read_failed(int err) { return errno_status(err, "cannot read the sample cache's file"); }

}  // namespace

Result<UniqueFd> open_unnamed_file(const std::string& dir) {
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(dir).parent_path(), failed);
  if (::mkdir(dir.c_str(), kOwnersOnly) != 0 && errno != EEXIST)
    return tl::unexpected<Status>(
        errno_status(errno, "cannot make " + dir + " for sample caches; see cache.dir"));
  UniqueFd file(::open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (file) return file;
  // Some file systems have no files without a name: one that loses it at once will do.
  std::string name = dir + "/cache-XXXXXX";
  file = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
  if (!file)
    return tl::unexpected<Status>(
        errno_status(errno, "cannot make a file in " + dir + " for a sample cache; see cache.dir"));
  ::unlink(name.c_str());
  return file;
}

// Copies on their way to the file. Shared by the log and its writer, which may still be in the
// kernel when the log is gone. Thread-safe; each item's sink is told once, and none after close().
class DiskLog::Queue {
 public:
  Queue(std::shared_ptr<const UniqueFd> file, std::uint64_t max_bytes)
      : file_(std::move(file)), max_bytes_(max_bytes) {}

  enum class Taken { kNo, kYes, kFirst };  // kFirst: and the writer is to be submitted
  Taken push(std::uint64_t item, std::span<const std::byte> bytes, Sink& sink)
      SPDLD_EXCLUDES(mutex_);
  // One entry to the file: how many bytes, or nothing if there is none; then the writer's task
  // ends.
  std::optional<std::uint64_t> write_one() SPDLD_EXCLUDES(mutex_);
  // Drops what waits, and what is being written, too. The writer is not with the pool any more, or
  // `for_good`: nothing is taken from now on.
  void drop_all(bool for_good, const Status& why = {}) SPDLD_EXCLUDES(mutex_);
  Status failure() const SPDLD_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::uint64_t item = 0;
    Sink* sink = nullptr;
    std::vector<std::byte> bytes;
  };

  Status write(const std::vector<std::byte>& bytes);

  const std::shared_ptr<const UniqueFd> file_;
  const std::uint64_t max_bytes_;
  std::uint64_t end_ = 0;  // of the file; the writer's alone

  mutable Mutex mutex_;
  CondVar told_;
  std::deque<Entry> entries_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t bytes_ SPDLD_GUARDED_BY(mutex_) = 0;       // of what waits
  std::optional<Entry> in_hand_ SPDLD_GUARDED_BY(mutex_);  // without bytes; the writer's
  bool writing_ SPDLD_GUARDED_BY(mutex_) = false;          // the pool has the writer
  bool telling_ SPDLD_GUARDED_BY(mutex_) = false;          // the writer is calling a sink
  bool closed_ SPDLD_GUARDED_BY(mutex_) = false;
  Status failure_ SPDLD_GUARDED_BY(mutex_);
};

DiskLog::Queue::Taken DiskLog::Queue::push(std::uint64_t item, std::span<const std::byte> bytes,
                                           Sink& sink) {
  MutexLock lock(mutex_);
  if (!failure_.ok() || closed_ || bytes.size() > max_bytes_ - bytes_) return Taken::kNo;
  entries_.push_back({item, &sink, std::vector<std::byte>(bytes.begin(), bytes.end())});
  bytes_ += bytes.size();
  return std::exchange(writing_, true) ? Taken::kYes : Taken::kFirst;
}

std::optional<std::uint64_t> DiskLog::Queue::write_one() {
  Entry entry;
  bool may_write = false;
  {
    MutexLock lock(mutex_);
    if (entries_.empty()) {
      writing_ = false;
      return std::nullopt;
    }
    entry = std::move(entries_.front());
    entries_.pop_front();
    bytes_ -= entry.bytes.size();
    in_hand_ = {entry.item, entry.sink, {}};
    may_write = failure_.ok();
  }
  const std::uint64_t location = end_;
  const Status written = may_write ? write(entry.bytes) : Status();
  if (may_write && written.ok()) end_ += entry.bytes.size();
  {
    MutexLock lock(mutex_);
    if (!written.ok() && failure_.ok()) failure_ = written;
    if (!in_hand_) return entry.bytes.size();  // it was dropped meanwhile
    in_hand_.reset();
    telling_ = true;
  }
  if (may_write && written.ok()) {
    entry.sink->appended(entry.item, location);
  } else {
    entry.sink->dropped(entry.item);
  }
  MutexLock lock(mutex_);
  telling_ = false;
  told_.notify_all();
  return entry.bytes.size();
}

Status DiskLog::Queue::write(const std::vector<std::byte>& bytes) {
  std::uint64_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pwrite(file_->get(), bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(end_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return errno_status(count < 0 ? errno : ENOSPC,
                          "it keeps nothing more, as its file cannot grow; make room in "
                          "cache.dir and restart the job");
    done += static_cast<std::uint64_t>(count);
  }
  return {};
}

void DiskLog::Queue::drop_all(bool for_good, const Status& why) {
  std::deque<Entry> dropped;
  {
    MutexLock lock(mutex_);
    dropped.swap(entries_);
    bytes_ = 0;
    if (in_hand_) dropped.push_back(*std::exchange(in_hand_, std::nullopt));
    if (for_good) {
      closed_ = true;
    } else {
      writing_ = false;
    }
    if (failure_.ok()) failure_ = why;
    // A sink may die after this, so no call of it may be under way. It never waits for a disk.
    while (telling_) told_.wait(mutex_);
  }
  for (const Entry& entry : dropped) entry.sink->dropped(entry.item);
}

Status DiskLog::Queue::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

// Takes the queue to the file, one entry after the other.
class DiskLog::Writer final : public source::IoTask {
 public:
  explicit Writer(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

  std::optional<std::chrono::nanoseconds> run() override {
    expect_size_limit();
    for (std::uint64_t written = 0; written < kTurnBytes;) {
      const auto bytes = queue_->write_one();
      if (!bytes) return std::nullopt;
      written += *bytes;
    }
    return std::chrono::nanoseconds(0);  // the device's other readers have a turn
  }
  void cancel() override { queue_->drop_all(true, {Code::kCancelled, "the daemon is stopping"}); }

 private:
  static constexpr std::uint64_t kTurnBytes = std::uint64_t{8} << 20;

  const std::shared_ptr<Queue> queue_;
};

// A read that was not done at once.
class DiskLog::Reader final : public source::PendingRead {
 public:
  Reader(std::shared_ptr<const UniqueFd> file, std::shared_ptr<source::PendingReads> reads,
         std::uint64_t location, std::uint64_t done, source::ItemBytes& out,
         source::FetchSink& sink, std::uint64_t token)
      : PendingRead(std::move(reads), out, sink, token),
        file_(std::move(file)),
        location_(location),
        done_(done) {}

  std::optional<std::chrono::nanoseconds> run() override { return end(read_all()); }

 private:
  Status read_all() {
    ByteBuffer& bytes = item().bytes;
    while (done_ < bytes.size()) {
      const ssize_t count = ::pread(file_->get(), bytes.data() + done_, bytes.size() - done_,
                                    static_cast<off_t>(location_ + done_));
      if (count == 0) return {Code::kDataLoss, "the sample cache's file became shorter"};
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return read_failed(errno);
      done_ += static_cast<std::uint64_t>(count);
    }
    return {};
  }
  Status cancelled() const override { return {Code::kCancelled, "the sample cache was closed"}; }

  const std::shared_ptr<const UniqueFd> file_;
  const std::uint64_t location_;
  std::uint64_t done_;
};

DiskLog::DiskLog(UniqueFd file, source::IoPool& io, std::uint64_t max_queued_bytes)
    : file_(std::make_shared<const UniqueFd>(std::move(file))),
      device_(device_of(file_->get())),
      io_(io),
      queue_(std::make_shared<Queue>(file_, max_queued_bytes)),
      writer_(std::make_shared<Writer>(queue_)),
      reads_(std::make_shared<source::PendingReads>()) {}

DiskLog::~DiskLog() {
  io_.withdraw(*writer_);
  queue_->drop_all(true);
  reads_->close(io_);
}

void DiskLog::append(std::uint64_t item, std::span<const std::byte> bytes, Sink& sink) {
  const Queue::Taken taken = queue_->push(item, bytes, sink);
  if (taken == Queue::Taken::kNo) return sink.dropped(item);
  if (taken == Queue::Taken::kYes || io_.submit(device_, writer_).ok()) return;
  // The pool is full or stopped: another item may have better luck.
  queue_->drop_all(false);
}

Result<source::FetchState> DiskLog::read(std::uint64_t location, std::uint64_t size_bytes,
                                         source::ItemBytes& out, source::FetchSink& sink,
                                         std::uint64_t token) {
  std::byte* const data = out.bytes.resize(size_bytes);
  std::uint64_t done = 0;
  while (done < size_bytes) {
    const iovec part{data + done, size_bytes - done};
    const ssize_t count =
        ::preadv2(file_->get(), &part, 1, static_cast<off_t>(location + done), RWF_NOWAIT);
    // Not in the page cache, or nobody can tell: the pool finds out, and what else is wrong.
    if (count <= 0) break;
    done += static_cast<std::uint64_t>(count);
  }
  if (done == size_bytes) return source::FetchState::kReady;
  const auto reader = std::make_shared<Reader>(file_, reads_, location, done, out, sink, token);
  if (Status status = reads_->submit(io_, device_, ::geteuid(), reader); !status.ok())
    return tl::unexpected<Status>(std::move(status));
  return source::FetchState::kPending;
}

Status DiskLog::failure() const { return queue_->failure(); }

}  // namespace spdld::engine
