// SPDX-License-Identifier: Apache-2.0
#include "source/file_fetcher.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "base/descriptors.h"
#include "base/no_memory.h"
#include "base/rng.h"
#include "source/access.h"
#include "source/path_error.h"

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
    case ENOMEM: return true;
    case EMFILE:
    case ENFILE: note_descriptor_shortage(err); return true;
    default: return false;
  }
}

std::int64_t wall_ns(const Clock& clock) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock.wall().time_since_epoch())
      .count();
}

}  // namespace

// The directory and how it is read. Immutable; any thread.
class FileFetcher::Files {
 public:
  // How far a file has been read.
  struct Reading {
    OpenFile file;
    std::size_t done_bytes = 0;
    std::optional<ItemStamp> stamp;  // when it was opened; only for a revision
  };
  struct Outcome {
    enum class Kind { kDone, kWouldBlock, kNoRoom, kTransient, kFailed };
    Kind kind = Kind::kDone;
    Status status;
    std::uint64_t wanted_bytes = 0;  // kNoRoom: of the reader's buffers
  };

  Files(std::unique_ptr<Disk> disk, Options options)
      : disk_(std::move(disk)),
        options_(std::move(options)),
        jitter_key_(mix64(static_cast<std::uint64_t>(::getpid()),
                          static_cast<std::uint64_t>(
                              std::chrono::system_clock::now().time_since_epoch().count()))) {}

  Outcome advance(const std::string& uri, Reading& reading, ByteBuffer& out, Revision* revision,
                  bool may_block) const;
  BufferMemory::Request request_room() const { return {options_.buffers, options_.reader}; }
  // Before another attempt, after so many that failed.
  std::chrono::nanoseconds pause(int failures, const std::string& uri) const;
  std::string path_of(const std::string& uri) const;
  int retries() const { return options_.retry.retries; }
  uid_t reader() const { return options_.reader; }
  dev_t device_of(const Reading& reading) const {
    return reading.file.fd ? reading.file.device : disk_->device();
  }

 private:
  Outcome open(const std::string& uri, Reading& reading, ByteBuffer& out, Revision* revision) const;
  // Whether `out` may take so much now.
  bool count(ByteBuffer& out, std::uint64_t bytes) const;
  Outcome failed(int err, const char* what, const std::string& uri,
                 const std::string& why = {}) const;

  const std::unique_ptr<Disk> disk_;
  const Options options_;
  const std::uint64_t jitter_key_;
};

class FileFetcher::Pending final : public PendingRead {
 public:
  Pending(std::shared_ptr<const Files> files, std::shared_ptr<PendingReads> reads, std::string uri,
          Files::Reading reading, std::uint64_t wanted_bytes,
          std::optional<std::chrono::nanoseconds> first_pause, ByteBuffer& out, Revision* revision,
          FetchSink& sink, std::uint64_t token, IoPool& io)
      : PendingRead(std::move(reads), out, revision, sink, token),
        files_(std::move(files)),
        uri_(std::move(uri)),
        reading_(std::move(reading)),
        io_(io),
        room_(files_->request_room()),
        wanted_bytes_(wanted_bytes),
        failures_(first_pause ? 1 : 0),
        first_pause_(first_pause) {}

  std::optional<std::chrono::nanoseconds> run() override {
    if (first_pause_) return std::exchange(first_pause_, std::nullopt);
    Files::Outcome outcome;
    do {
      if (!has_room()) return kUntilResumed;
      outcome = files_->advance(uri_, reading_, bytes(), revision(), true);
      reading_ = {};  // what failed, or has to wait, is opened again
      wanted_bytes_ = outcome.wanted_bytes;
    } while (outcome.kind == Files::Outcome::Kind::kNoRoom);
    if (outcome.kind != Files::Outcome::Kind::kTransient) return end(std::move(outcome.status));
    if (failures_ < files_->retries()) return files_->pause(++failures_, uri_);
    if (outcome.status.code() == kNoMemory) return end(std::move(outcome.status));
    return end(Status(Code::kUnavailable, outcome.status.message() + ", also after " +
                                              std::to_string(failures_) +
                                              " retries; see that its storage answers"));
  }

 private:
  // False: run() is called again when there may be.
  bool has_room() {
    if (wanted_bytes_ == 0) return true;
    auto share = room_.take(wanted_bytes_, [weak = weak_from_this(), &io = io_] {
      if (const auto read = weak.lock()) io.resume(*read);
    });
    if (!share) return false;
    bytes().count(*std::move(share));
    return true;
  }
  Status cancelled() const override {
    return {Code::kCancelled, files_->path_of(uri_) + ": the source was closed"};
  }

  const std::shared_ptr<const Files> files_;
  const std::string uri_;
  Files::Reading reading_;
  IoPool& io_;
  BufferMemory::Request room_;
  std::uint64_t wanted_bytes_;  // of room, before the file is opened
  int failures_;
  std::optional<std::chrono::nanoseconds> first_pause_;
};

FileFetcher::FileFetcher(std::unique_ptr<Disk> disk, IoPool& io, Options options)
    : files_(std::make_shared<const Files>(std::move(disk), std::move(options))),
      pending_(std::make_shared<PendingReads>()),
      io_(io) {}

FileFetcher::~FileFetcher() { pending_->close(io_); }

Result<FetchState> FileFetcher::fetch(std::string uri, ByteBuffer& out, FetchSink& sink,
                                      std::uint64_t token, Revision* revision) {
  if (revision != nullptr) {
    revision->stamp.reset();
    revision->unchanged = false;
  }
  Files::Reading reading;
  Files::Outcome outcome = files_->advance(uri, reading, out, revision, false);
  if (outcome.kind == Files::Outcome::Kind::kDone) return FetchState::kReady;
  if (outcome.kind == Files::Outcome::Kind::kFailed)
    return tl::unexpected(std::move(outcome.status));

  const dev_t device = files_->device_of(reading);
  if (outcome.kind == Files::Outcome::Kind::kNoRoom) reading = {};
  std::optional<std::chrono::nanoseconds> first_pause;
  if (outcome.kind == Files::Outcome::Kind::kTransient) {
    if (files_->retries() <= 0) {
      if (outcome.status.code() == kNoMemory) return tl::unexpected(std::move(outcome.status));
      return error(Code::kUnavailable, outcome.status.message() +
                                           ", and retries are off; see that its storage answers");
    }
    reading = {};
    first_pause = files_->pause(1, uri);
  }
  const auto pending =
      std::make_shared<Pending>(files_, pending_, std::move(uri), std::move(reading),
                                outcome.wanted_bytes, first_pause, out, revision, sink, token, io_);
  if (Status status = pending_->submit(io_, device, files_->reader(), pending); !status.ok())
    return tl::unexpected(std::move(status));
  return FetchState::kPending;
}

FileFetcher::Files::Outcome FileFetcher::Files::open(const std::string& uri, Reading& reading,
                                                     ByteBuffer& out, Revision* revision) const {
  if (const int err = disk_->open(uri, reading.file); err != 0) {
    return failed(err, "cannot open", uri, reading.file.why_not);
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
  const std::uint64_t wanted = ByteBuffer::grown(size + 1);
  if (!count(out, wanted))
    return {.kind = Outcome::Kind::kNoRoom, .status = {}, .wanted_bytes = wanted};
  try {
    out.resize(size + 1);  // a byte more than there should be, to see a file that grew
  } catch (const std::bad_alloc&) {
    return {Outcome::Kind::kFailed, no_memory(path_of(uri), size)};
  }
  return {};
}

bool FileFetcher::Files::count(ByteBuffer& out, std::uint64_t bytes) const {
  if (options_.buffers == nullptr || out.counted_bytes() >= bytes) return true;
  if (out.counted_bytes() > 0) out.shrink(0);  // of an item that was read before it
  auto share = options_.buffers->take(options_.reader, bytes);
  if (!share) return false;
  out.count(*std::move(share));
  return true;
}

FileFetcher::Files::Outcome FileFetcher::Files::advance(const std::string& uri, Reading& reading,
                                                        ByteBuffer& out, Revision* revision,
                                                        bool may_block) const {
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

FileFetcher::Files::Outcome FileFetcher::Files::failed(int err, const char* what,
                                                       const std::string& uri,
                                                       const std::string& why) const {
  const std::string path = path_of(uri);
  if (err == ENOMEM) {
    Status status = no_memory("the kernel");
    return {Outcome::Kind::kTransient, status.with_context(std::string(what) + " " + path)};
  }
  if (is_transient(err)) {
    return {Outcome::Kind::kTransient, errno_status(err, std::string(what) + " " + path)};
  }
  if (!why.empty()) {
    return {Outcome::Kind::kFailed, Access::status({.err = err, .why = why}, what, path)};
  }
  Status status;
  switch (err) {
    case ENOENT:
    case ENOTDIR:
      status = Status(Code::kNotFound, path +
                                           " is gone since the dataset was listed; restore it, or "
                                           "apply the pipeline again");
      break;
    case ELOOP:
      status = Status(Code::kPermissionDenied,
                      path +
                          " is a symlink that leads back to itself, or one that "
                          "'follow_symlinks: false' forbids; mend or remove it");
      break;
    case EXDEV:
      status = Status(Code::kPermissionDenied,
                      path +
                          " leads by a symlink to where this source may not read; see "
                          "follow_symlinks and access.roots");
      break;
    case EISDIR:
    case ENXIO:  // a socket
      status = Status(Code::kDataLoss, path + " was listed as a file and is none any more");
      break;
    default: status = path_error(err, what, path);
  }
  return {Outcome::Kind::kFailed, std::move(status)};
}

std::chrono::nanoseconds FileFetcher::Files::pause(int failures, const std::string& uri) const {
  std::chrono::nanoseconds pause = std::min(options_.retry_pause, kLongestPause);
  for (int i = 1; i < failures && pause < kLongestPause; ++i) pause *= 2;
  KeyedRng rng(mix64(mix64(jitter_key_, name_key(uri)), static_cast<std::uint64_t>(failures)));
  const auto count = static_cast<double>(std::min(pause, kLongestPause).count());
  return std::chrono::nanoseconds(static_cast<std::int64_t>(count * rng.uniform(0.5, 1.0)));
}

std::string FileFetcher::Files::path_of(const std::string& uri) const {
  return (options_.root == "/" ? "" : options_.root) + "/" + uri;
}

}  // namespace spdld::source
