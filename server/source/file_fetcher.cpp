// SPDX-License-Identifier: Apache-2.0
#include "source/file_fetcher.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "base/rng.h"
#include "source/access.h"

namespace spdld::source {
namespace {

constexpr std::chrono::nanoseconds kLongestPause = std::chrono::seconds(5);

bool is_transient(int err) {
  switch (err) {
    case EIO:
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ESTALE:
    case ETIMEDOUT:
    case ENETDOWN:
    case ENETUNREACH:
    case ENETRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ECONNABORTED:
    case ECONNRESET:
    case ECONNREFUSED:
    case ENOTCONN:
    case ESHUTDOWN:
    case EREMOTEIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return true;
    default: return false;
  }
}

std::int64_t wall_ns(const Clock& clock) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock.wall().time_since_epoch())
      .count();
}

}  // namespace

// A fetch that was not done at once. Kept for the next one when it has ended.
class FileFetcher::Pending final : public IoTask {
 public:
  explicit Pending(FileFetcher& fetcher) : fetcher_(fetcher) {}

  void begin(std::string uri, Reading reading, ByteBuffer& out, FetchSink& sink,
             std::uint64_t token, Revision* revision,
             std::optional<std::chrono::nanoseconds> first_pause) {
    uri_ = std::move(uri);
    reading_ = std::move(reading);
    out_ = &out;
    sink_ = &sink;
    token_ = token;
    revision_ = revision;
    failures_ = first_pause ? 1 : 0;
    first_pause_ = first_pause;
  }

  void forget() { reading_ = {}; }

  std::optional<std::chrono::nanoseconds> run(bool stopped) override {
    if (stopped || fetcher_.closing()) {
      return end(Status(Code::kCancelled, fetcher_.path_of(uri_) + ": the source was closed"));
    }
    if (first_pause_) return std::exchange(first_pause_, std::nullopt);
    Outcome outcome = fetcher_.advance(uri_, reading_, *out_, revision_, true);
    if (outcome.kind != Outcome::Kind::kTransient) return end(std::move(outcome.status));
    if (failures_ < fetcher_.options_.retry.retries) {
      reading_ = {};
      return fetcher_.pause(++failures_, uri_);
    }
    return end(Status(Code::kUnavailable, outcome.status.message() + ", also after " +
                                              std::to_string(failures_) +
                                              " retries; see that its storage answers"));
  }

 private:
  std::nullopt_t end(Status status) {
    reading_ = {};
    sink_->fetched(token_, std::move(status));
    fetcher_.give_back(*this);
    return std::nullopt;
  }

  FileFetcher& fetcher_;
  std::string uri_;
  Reading reading_;
  ByteBuffer* out_ = nullptr;
  FetchSink* sink_ = nullptr;
  std::uint64_t token_ = 0;
  Revision* revision_ = nullptr;
  int failures_ = 0;
  std::optional<std::chrono::nanoseconds> first_pause_;
};

FileFetcher::FileFetcher(std::unique_ptr<Disk> disk, IoPool& io, Options options)
    : disk_(std::move(disk)),
      io_(io),
      options_(std::move(options)),
      jitter_key_(mix64(static_cast<std::uint64_t>(::getpid()),
                        static_cast<std::uint64_t>(
                            std::chrono::system_clock::now().time_since_epoch().count()))) {}

FileFetcher::~FileFetcher() {
  MutexLock lock(mutex_);
  closing_ = true;
  // One that is not pending only takes note of it until it is submitted again, which it never is.
  for (const auto& pending : all_) io_.hasten(*pending);
  while (free_.size() < all_.size()) idle_.wait(mutex_);
}

Result<FetchState> FileFetcher::fetch(std::string uri, ByteBuffer& out, FetchSink& sink,
                                      std::uint64_t token, Revision* revision) {
  if (revision != nullptr) {
    revision->stamp.reset();
    revision->unchanged = false;
  }
  Reading reading;
  Outcome outcome = advance(uri, reading, out, revision, false);
  if (outcome.kind == Outcome::Kind::kDone) return FetchState::kReady;
  if (outcome.kind == Outcome::Kind::kFailed) return tl::unexpected(std::move(outcome.status));

  std::optional<std::chrono::nanoseconds> first_pause;
  if (outcome.kind == Outcome::Kind::kTransient) {
    if (options_.retry.retries <= 0) {
      return error(Code::kUnavailable, outcome.status.message() +
                                           ", and retries are off; see that its storage answers");
    }
    reading = {};
    first_pause = pause(1, uri);
  }
  const dev_t device = reading.file.fd ? reading.file.device : disk_->device();
  Pending& pending = borrow();
  pending.begin(std::move(uri), std::move(reading), out, sink, token, revision, first_pause);
  if (Status status = io_.submit(device, pending); !status.ok()) {
    pending.forget();
    give_back(pending);
    return tl::unexpected(std::move(status));
  }
  return FetchState::kPending;
}

FileFetcher::Outcome FileFetcher::open(const std::string& uri, Reading& reading, ByteBuffer& out,
                                       Revision* revision) {
  if (const int err = disk_->open(uri, reading.file); err != 0) {
    return failed(err, "cannot open", uri);
  }
  if (revision != nullptr) {
    reading.stamp = stamp_of_fd(reading.file.fd.get());
    revision->unchanged = reading.stamp && reading.stamp == revision->known;
    if (revision->unchanged) return {};
  }
  const std::uint64_t size = reading.file.size_bytes;
  if (size > options_.max_file_bytes) {
    return {Outcome::Kind::kFailed,
            Status(Code::kResourceExhausted,
                   path_of(uri) + " has " + std::to_string(size) + " bytes, more than the " +
                       std::to_string(options_.max_file_bytes) + " that an item may have")};
  }
  try {
    out.resize(size + 1);  // a byte more than there should be, to see a file that grew
  } catch (const std::bad_alloc&) {
    return {Outcome::Kind::kFailed,
            Status(Code::kResourceExhausted, "there is no memory for the " + std::to_string(size) +
                                                 " bytes of " + path_of(uri))};
  }
  return {};
}

FileFetcher::Outcome FileFetcher::advance(const std::string& uri, Reading& reading, ByteBuffer& out,
                                          Revision* revision, bool may_block) {
  OpenFile& file = reading.file;
  if (!file.fd) {
    if (!may_block && disk_->opening_blocks()) return {Outcome::Kind::kWouldBlock, {}};
    Outcome opened = open(uri, reading, out, revision);
    if (opened.kind != Outcome::Kind::kDone) return opened;
    if (revision != nullptr && revision->unchanged) return opened;
  }
  const auto changed = [&](const char* how) {
    return Outcome{Outcome::Kind::kFailed,
                   Status(Code::kDataLoss, path_of(uri) + how +
                                               "; leave a dataset as it is while "
                                               "it is in use")};
  };
  while (reading.done_bytes < file.size_bytes || file.size_bytes == 0) {
    const std::span<std::byte> rest(out.data() + reading.done_bytes,
                                    file.size_bytes + 1 - reading.done_bytes);
    const ssize_t count = may_block ? disk_->read(file, rest, reading.done_bytes)
                                    : disk_->read_cached(file, rest, reading.done_bytes);
    if (count < 0) {
      // EAGAIN: not in the page cache. The others: this file system cannot tell.
      const bool blocks =
          count == -EAGAIN || count == -EOPNOTSUPP || count == -ENOSYS || count == -EINVAL;
      if (!may_block && blocks) return {Outcome::Kind::kWouldBlock, {}};
      return failed(static_cast<int>(-count), "cannot read", uri);
    }
    if (count == 0) {
      if (file.size_bytes == 0) break;
      // Some kernels answer so for what is not in the page cache.
      if (!may_block) return {Outcome::Kind::kWouldBlock, {}};
      return changed(" became shorter while it was read");
    }
    reading.done_bytes += static_cast<std::size_t>(count);
  }
  if (reading.done_bytes > file.size_bytes) return changed(" became longer while it was read");
  out.resize(file.size_bytes);
  // What changed while it was read is neither the old content nor the new one.
  if (revision != nullptr && reading.stamp &&
      is_settled(*reading.stamp, wall_ns(*options_.clock)) &&
      stamp_of_fd(file.fd.get()) == reading.stamp) {
    revision->stamp = reading.stamp;
  }
  return {};
}

FileFetcher::Outcome FileFetcher::failed(int err, const char* what, const std::string& uri) const {
  const std::string path = path_of(uri);
  if (is_transient(err)) {
    return {Outcome::Kind::kTransient, errno_status(err, std::string(what) + " " + path)};
  }
  Status status;
  switch (err) {
    case ENOENT:
    case ENOTDIR:
      status = Status(Code::kNotFound, path +
                                           " is gone since the dataset was listed; restore it, or "
                                           "apply the pipeline again");
      break;
    case EXDEV:
    case ELOOP:
      status = Status(Code::kPermissionDenied,
                      path +
                          " leads by a symlink to where this source may not read; see "
                          "follow_symlinks and access.roots");
      break;
    case EISDIR:
      status = Status(Code::kDataLoss, path + " was listed as a file and is none any more");
      break;
    default: status = path_error(err, what, path);
  }
  return {Outcome::Kind::kFailed, std::move(status)};
}

std::chrono::nanoseconds FileFetcher::pause(int failures, const std::string& uri) const {
  std::chrono::nanoseconds pause = std::min(options_.retry_pause, kLongestPause);
  for (int i = 1; i < failures && pause < kLongestPause; ++i) pause *= 2;
  KeyedRng rng(mix64(mix64(jitter_key_, name_key(uri)), static_cast<std::uint64_t>(failures)));
  const auto count = static_cast<double>(std::min(pause, kLongestPause).count());
  return std::chrono::nanoseconds(static_cast<std::int64_t>(count * rng.uniform(0.5, 1.0)));
}

std::string FileFetcher::path_of(const std::string& uri) const {
  return (options_.root == "/" ? "" : options_.root) + "/" + uri;
}

FileFetcher::Pending& FileFetcher::borrow() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    all_.push_back(std::make_unique<Pending>(*this));
    free_.reserve(all_.size());
    return *all_.back();
  }
  Pending& pending = *free_.back();
  free_.pop_back();
  return pending;
}

void FileFetcher::give_back(Pending& pending) {
  MutexLock lock(mutex_);
  free_.push_back(&pending);
  if (closing_) idle_.notify_all();
}

bool FileFetcher::closing() {
  MutexLock lock(mutex_);
  return closing_;
}

}  // namespace spdld::source
