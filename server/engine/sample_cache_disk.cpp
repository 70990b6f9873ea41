// SPDX-License-Identifier: Apache-2.0
#include "engine/sample_cache_disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

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

// Takes the queue to the file, one entry after the other.
class DiskLog::Writer final : public source::IoTask {
 public:
  explicit Writer(DiskLog& log) : log_(log) {}

  std::optional<std::chrono::nanoseconds> run(bool stopped) override {
    expect_size_limit();
    for (std::uint64_t written = 0; written < kTurnBytes;) {
      std::deque<Queued> batch;
      bool write = true;
      {
        MutexLock lock(log_.mutex_);
        if (stopped && log_.failure_.ok())
          log_.failure_ = Status(Code::kCancelled, "the daemon is stopping");
        write = !log_.closing_ && log_.failure_.ok();
        if (log_.queue_.empty()) {
          log_.writing_ = false;
          log_.idle_.notify_all();  // the log may be gone once the lock is
          return std::nullopt;
        }
        log_.take_queued(write ? 1 : log_.queue_.size(), batch);
      }
      for (const Queued& queued : batch) {
        const std::uint64_t location = log_.end_;
        if (write && log_.write(queued.bytes)) {
          written += queued.bytes.size();
          queued.sink->appended(queued.item, location);
        } else {
          queued.sink->dropped(queued.item);
        }
      }
    }
    return std::chrono::nanoseconds(0);  // the device's other readers have a turn
  }

 private:
  static constexpr std::uint64_t kTurnBytes = std::uint64_t{8} << 20;

  DiskLog& log_;
};

// A read that was not done at once. Kept for the next one when it has ended.
class DiskLog::Reader final : public source::IoTask {
 public:
  explicit Reader(DiskLog& log) : log_(log) {}

  void begin(std::uint64_t location, std::uint64_t done, ByteBuffer& out, source::FetchSink& sink,
             std::uint64_t token) {
    location_ = location;
    done_ = done;
    out_ = &out;
    sink_ = &sink;
    token_ = token;
  }

  std::optional<std::chrono::nanoseconds> run(bool stopped) override {
    Status status;
    if (stopped) {
      status = Status(Code::kCancelled, "the daemon is stopping");
    } else {
      status = read_all();
    }
    sink_->fetched(token_, std::move(status));
    log_.give_back(*this);
    return std::nullopt;
  }

 private:
  Status read_all() {
    while (done_ < out_->size()) {
      const ssize_t count = ::pread(log_.file_.get(), out_->data() + done_, out_->size() - done_,
                                    static_cast<off_t>(location_ + done_));
      if (count == 0) return {Code::kDataLoss, "the sample cache's file became shorter"};
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return read_failed(errno);
      done_ += static_cast<std::uint64_t>(count);
    }
    return {};
  }

  DiskLog& log_;
  std::uint64_t location_ = 0;
  std::uint64_t done_ = 0;
  ByteBuffer* out_ = nullptr;
  source::FetchSink* sink_ = nullptr;
  std::uint64_t token_ = 0;
};

DiskLog::DiskLog(UniqueFd file, source::IoPool& io, std::uint64_t max_queued_bytes)
    : file_(std::move(file)),
      device_(device_of(file_.get())),
      io_(io),
      max_queued_bytes_(max_queued_bytes),
      writer_(std::make_unique<Writer>(*this)) {}

DiskLog::~DiskLog() {
  MutexLock lock(mutex_);
  closing_ = true;
  while (writing_ || free_readers_.size() < readers_.size()) idle_.wait(mutex_);
}

void DiskLog::append(std::uint64_t item, std::span<const std::byte> bytes, Sink& sink) {
  bool taken = false;
  bool start = false;
  {
    MutexLock lock(mutex_);
    taken = failure_.ok() && !closing_ && bytes.size() <= max_queued_bytes_ - queued_bytes_;
    if (taken) {
      queue_.push_back({item, &sink, std::vector<std::byte>(bytes.begin(), bytes.end())});
      queued_bytes_ += bytes.size();
      start = !std::exchange(writing_, true);
    }
  }
  if (!taken) return sink.dropped(item);
  if (!start) return;
  Status status = io_.submit(device_, *writer_);
  if (status.ok()) return;
  // The pool is full or stopped: another item may have better luck.
  std::deque<Queued> dropped;
  {
    MutexLock lock(mutex_);
    take_queued(queue_.size(), dropped);
    writing_ = false;
    idle_.notify_all();
  }
  for (const Queued& queued : dropped) queued.sink->dropped(queued.item);
}

void DiskLog::take_queued(std::size_t count, std::deque<Queued>& into) {
  for (; count > 0; --count) {
    queued_bytes_ -= queue_.front().bytes.size();
    into.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

bool DiskLog::write(const std::vector<std::byte>& bytes) {
  std::uint64_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pwrite(file_.get(), bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(end_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int err = count < 0 ? errno : ENOSPC;
      MutexLock lock(mutex_);
      failure_ = errno_status(err,
                              "it keeps nothing more, as its file cannot grow; make room in "
                              "cache.dir and restart the job");
      return false;
    }
    done += static_cast<std::uint64_t>(count);
  }
  end_ += bytes.size();
  return true;
}

Result<source::FetchState> DiskLog::read(std::uint64_t location, std::uint64_t size_bytes,
                                         ByteBuffer& out, source::FetchSink& sink,
                                         std::uint64_t token) {
  out.resize(size_bytes);
  std::uint64_t done = 0;
  while (done < size_bytes) {
    const iovec part{out.data() + done, size_bytes - done};
    const ssize_t count =
        ::preadv2(file_.get(), &part, 1, static_cast<off_t>(location + done), RWF_NOWAIT);
    // Not in the page cache, or nobody can tell: the pool finds out, and what else is wrong.
    if (count <= 0) break;
    done += static_cast<std::uint64_t>(count);
  }
  if (done == size_bytes) return source::FetchState::kReady;
  Reader& reader = borrow();
  reader.begin(location, done, out, sink, token);
  if (Status status = io_.submit(device_, reader); !status.ok()) {
    give_back(reader);
    return tl::unexpected<Status>(std::move(status));
  }
  return source::FetchState::kPending;
}

Status DiskLog::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

DiskLog::Reader& DiskLog::borrow() {
  MutexLock lock(mutex_);
  if (free_readers_.empty()) {
    readers_.push_back(std::make_unique<Reader>(*this));
    free_readers_.reserve(readers_.size());
    return *readers_.back();
  }
  Reader& reader = *free_readers_.back();
  free_readers_.pop_back();
  return reader;
}

void DiskLog::give_back(Reader& reader) {
  MutexLock lock(mutex_);
  free_readers_.push_back(&reader);
  if (closing_) idle_.notify_all();
}

}  // namespace spdld::engine
