// SPDX-License-Identifier: Apache-2.0
#include "source/file/file_fetcher.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/descriptors.h"
#include "base/memory/no_memory.h"
#include "base/rng.h"
#include "source/bytes/path_error.h"
#include "source/file/access.h"

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

// " has changed since it was indexed: 10240 bytes of 2026-01-31 12:00:00 then, ..."
std::string changed_text(const ItemStamp& listed, const ItemStamp& now) {
  const auto text = [](const ItemStamp& stamp) {
    const std::time_t seconds = stamp.mtime_ns / 1'000'000'000;
    std::tm time{};
    char date[32] = "";
    if (::gmtime_r(&seconds, &time) != nullptr)
      std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &time);
    char fraction[16];
    std::snprintf(fraction, sizeof fraction, ".%03d",
                  static_cast<int>(stamp.mtime_ns % 1'000'000'000 / 1'000'000));
    return std::to_string(stamp.size_bytes) + " bytes of " + date + fraction + " UTC";
  };
  return " has changed since it was indexed: " + text(listed) + " then, " + text(now) + " now";
}

std::int64_t wall_ns(const Clock& clock) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock.wall().time_since_epoch())
      .count();
}

}  // namespace

// The directory and how it is read. Immutable; any thread.
class FileFetcher::Files {
 public:
  struct Opened {
    OpenFile file;
    std::uint64_t size_bytes = 0;    // of the range
    std::optional<ItemStamp> stamp;  // when it was opened, where somebody needs to know
  };
  // How far an item has been read.
  struct Reading {
    std::array<Opened, kMostRanges> opened;
    std::size_t count = 0;         // of `opened`
    dev_t device = 0;              // that the open of the next one may wait for
    bool has_room = false;         // all are open, and the item's buffer is there
    std::size_t range = 0;         // that is being read ...
    std::uint64_t done_bytes = 0;  // ... so far
  };
  struct Outcome {
    enum class Kind { kDone, kWouldBlock, kNoRoom, kTransient, kFailed };
    Kind kind = Kind::kDone;
    Status status;
    std::uint64_t wanted_bytes = 0;  // kNoRoom: of the reader's buffers
  };

  Files(std::vector<Root> roots, Options options)
      : roots_(std::move(roots)),
        options_(std::move(options)),
        jitter_key_(mix64(static_cast<std::uint64_t>(::getpid()),
                          static_cast<std::uint64_t>(
                              std::chrono::system_clock::now().time_since_epoch().count()))) {}

  Outcome advance(FetchedItem& item, Reading& reading, bool may_block) const;
  BufferMemory::Request request_room() const { return {options_.buffers, options_.reader}; }
  // Before another attempt, after so many that failed.
  std::chrono::nanoseconds pause(int failures, const std::string& uri) const;
  std::string path_of(const FileRange& range) const;
  // Blocks.
  Outcome open(const FileRange& range, Opened& opened, bool wants_stamp) const;
  Disk& disk_of(const FileRange& range) const { return *roots_[range.root].disk; }
  int retries() const { return options_.retry.retries; }
  uid_t reader() const { return options_.reader; }
  // Where the next thing that may block lies.
  static dev_t device_of(const Reading& reading) {
    return reading.has_room ? reading.opened[reading.range].file.device : reading.device;
  }

 private:
  Outcome make_room(FetchedItem& item, Reading& reading) const;
  Outcome read(const FileRange& range, Opened& opened, std::byte* out, std::uint64_t& done_bytes,
               std::uint64_t& left_at_once, bool may_block) const;
  // Whether `out` may take so much now.
  bool count(ByteBuffer& out, std::uint64_t bytes) const;
  Outcome failed(int err, const char* what, const FileRange& range,
                 const std::string& why = {}) const;
  Outcome not_as_listed(const FileRange& range, const std::string& how) const;

  const std::vector<Root> roots_;
  const Options options_;
  const std::uint64_t jitter_key_;
};

class FileFetcher::Pending final : public PendingRead {
 public:
  Pending(std::shared_ptr<const Files> files, std::shared_ptr<PendingReads> reads,
          Files::Reading reading, std::uint64_t wanted_bytes,
          std::optional<std::chrono::nanoseconds> first_pause, FetchedItem& out, FetchSink& sink,
          std::uint64_t token, IoPool& io)
      : PendingRead(std::move(reads), out, sink, token),
        files_(std::move(files)),
        uri_(item().ranges().front().uri),
        path_(files_->path_of(item().ranges().front())),
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
      outcome = files_->advance(item(), reading_, true);
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
    item().bytes.count(*std::move(share));
    return true;
  }
  Status cancelled() const override {
    return {Code::kCancelled, path_ + ": the source was closed"};
  }

  const std::shared_ptr<const Files> files_;
  const std::string uri_;  // of the item's first file
  const std::string path_;
  Files::Reading reading_;
  IoPool& io_;
  BufferMemory::Request room_;
  std::uint64_t wanted_bytes_;  // of room, before the files are opened
  int failures_;
  std::optional<std::chrono::nanoseconds> first_pause_;
};

class FileFetcher::Part final : public PartBytes {
 public:
  Part(std::shared_ptr<const Files> files, FileRange range, Files::Opened opened,
       std::uint64_t size)
      : files_(std::move(files)),
        range_(std::move(range)),
        path_(files_->path_of(range_)),
        file_(std::move(opened.file)),
        size_(size) {}

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  std::optional<ItemStamp> stamp() const override { return stamp_of_fd(file_.fd.get()); }
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override {
    if (offset >= size_) return std::size_t{0};
    out = out.first(std::min<std::uint64_t>(out.size(), size_ - offset));
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = files_->disk_of(range_).read(
          file_, std::as_writable_bytes(out.subspan(done)), range_.offset + offset + done);
      if (count == -EINTR) continue;
      if (count < 0)
        return tl::unexpected(path_error(static_cast<int>(-count), "cannot read", path_));
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }

 private:
  const std::shared_ptr<const Files> files_;
  const FileRange range_;
  const std::string path_;
  const OpenFile file_;
  const std::uint64_t size_;
};

FileFetcher::FileFetcher(std::vector<Root> roots, IoPool& io, Options options)
    : files_(std::make_shared<const Files>(std::move(roots), std::move(options))),
      pending_(std::make_shared<PendingReads>()),
      io_(io) {}

Status FileFetcher::check_parts(std::size_t parts, const std::string& key) {
  if (parts <= kMostRanges) return {};
  return {Code::kInvalidArgument, key + ": an item has " + std::to_string(parts) +
                                      " files, and may have " + std::to_string(kMostRanges) +
                                      ": name fewer, or pack them as tar shards"};
}

FileFetcher::~FileFetcher() { pending_->close(io_); }

Result<FetchState> FileFetcher::fetch(FetchedItem& out, FetchSink& sink, std::uint64_t token) {
  SPDLD_CHECK(!out.ranges().empty() && out.ranges().size() <= kMostRanges);
  out.revision.stamp.reset();
  out.revision.unchanged = false;
  Files::Reading reading;
  Files::Outcome outcome = files_->advance(out, reading, false);
  if (outcome.kind == Files::Outcome::Kind::kDone) return FetchState::kReady;
  if (outcome.kind == Files::Outcome::Kind::kFailed)
    return tl::unexpected(std::move(outcome.status));

  const dev_t device = Files::device_of(reading);
  if (outcome.kind == Files::Outcome::Kind::kNoRoom) reading = {};
  std::optional<std::chrono::nanoseconds> first_pause;
  if (outcome.kind == Files::Outcome::Kind::kTransient) {
    if (files_->retries() <= 0) {
      if (outcome.status.code() == kNoMemory) return tl::unexpected(std::move(outcome.status));
      return error(Code::kUnavailable, outcome.status.message() +
                                           ", and retries are off; see that its storage answers");
    }
    reading = {};
    first_pause = files_->pause(1, out.ranges().front().uri);
  }
  const auto pending =
      std::make_shared<Pending>(files_, pending_, std::move(reading), outcome.wanted_bytes,
                                first_pause, out, sink, token, io_);
  if (Status status = pending_->submit(io_, device, files_->reader(), pending); !status.ok())
    return tl::unexpected(std::move(status));
  return FetchState::kPending;
}

Result<std::unique_ptr<PartBytes>> FileFetcher::open(const FetchedItem& item) const {
  SPDLD_CHECK(item.ranges().size() == 1 && item.parts() == 1);
  const FileRange& range = item.ranges()[0];
  Files::Opened opened;
  Files::Outcome outcome = files_->open(range, opened, false);
  if (outcome.kind != Files::Outcome::Kind::kDone) return tl::unexpected(std::move(outcome.status));
  const std::uint64_t size = opened.size_bytes;
  return std::make_unique<Part>(files_, range, std::move(opened), size);
}

FileFetcher::Files::Outcome FileFetcher::Files::open(const FileRange& range, Opened& opened,
                                                     bool wants_stamp) const {
  if (const int err = disk_of(range).open(range.uri, opened.file); err != 0) {
    return failed(err, "cannot open", range, opened.file.why_not);
  }
  if (wants_stamp || range.expected) opened.stamp = stamp_of_fd(opened.file.fd.get());
  if (range.expected && opened.stamp && !same_size_and_time(*opened.stamp, *range.expected)) {
    return not_as_listed(range, changed_text(*range.expected, *opened.stamp));
  }
  const std::uint64_t size = opened.file.size_bytes;
  if (range.size_bytes == PartRequest::kToItsEnd) {
    opened.size_bytes = size - std::min(size, range.offset);
  } else if (range.offset > size || range.size_bytes > size - range.offset) {
    return not_as_listed(
        range, " has " + std::to_string(size) + " bytes, too few for what was " + "listed of it");
  } else {
    opened.size_bytes = range.size_bytes;
  }
  return {};
}

FileFetcher::Files::Outcome FileFetcher::Files::make_room(FetchedItem& item,
                                                          Reading& reading) const {
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < reading.count; ++i) {
    size += reading.opened[i].size_bytes;
    if (size <= options_.max_item_bytes) continue;
    return {Outcome::Kind::kFailed,
            Status(Code::kResourceExhausted, path_of(item.ranges()[i]) + " has " +
                                                 std::to_string(size) + " bytes, more than the " +
                                                 std::to_string(options_.max_item_bytes) +
                                                 " that an item may have")};
  }
  const std::uint64_t wanted = ByteBuffer::grown(size + 1);
  if (!count(item.bytes, wanted))
    return {.kind = Outcome::Kind::kNoRoom, .status = {}, .wanted_bytes = wanted};
  try {
    item.bytes.resize(size + 1);  // a byte more than there should be, to see a file that grew
  } catch (const std::bad_alloc&) {
    return {Outcome::Kind::kFailed, no_memory(path_of(item.ranges().front()), size)};
  }
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < reading.count; ++i)
    item.end_range(end += reading.opened[i].size_bytes);
  reading.has_room = true;
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

FileFetcher::Files::Outcome FileFetcher::Files::advance(FetchedItem& item, Reading& reading,
                                                        bool may_block) const {
  const std::span<const FileRange> ranges = item.ranges();
  Revision& revision = item.revision;
  const bool looks = revision.asked && !item.spared();
  const std::size_t asked_of = looks ? item.range_of(revision.request) : ranges.size();
  while (reading.count < ranges.size()) {
    const std::size_t at = reading.count;
    if (!may_block) {
      const Disk::Opening opening = disk_of(ranges[at]).opening(ranges[at].uri);
      reading.device = opening.device;
      if (!opening.at_once) return {Outcome::Kind::kWouldBlock, {}};
    }
    Opened& opened = reading.opened[at];
    Outcome outcome = open(ranges[at], opened, at == asked_of);
    if (outcome.kind != Outcome::Kind::kDone) return outcome;
    if (at == asked_of && item.parts_of(at) == 1) {
      revision.unchanged = opened.stamp && opened.stamp == revision.known;
      if (revision.unchanged) opened.size_bytes = 0;
    }
    ++reading.count;
  }
  if (!reading.has_room) {
    item.restart_ranges();
    Outcome outcome = make_room(item, reading);
    if (outcome.kind != Outcome::Kind::kDone) return outcome;
  }
  std::uint64_t left_at_once = may_block ? ~std::uint64_t{0} : kMostAtOnceBytes;
  for (; reading.range < ranges.size(); ++reading.range, reading.done_bytes = 0) {
    if (reading.range == asked_of && revision.unchanged) continue;
    Opened& opened = reading.opened[reading.range];
    Outcome outcome =
        read(ranges[reading.range], opened, item.bytes.data() + item.begin_of(reading.range),
             reading.done_bytes, left_at_once, may_block);
    if (outcome.kind != Outcome::Kind::kDone) return outcome;
  }
  item.bytes.resize(item.bytes.size() - 1);
  if (item.spared()) revision.unchanged = true;
  // What changed while it was read is neither the old content nor the new one.
  if (asked_of < ranges.size() && !revision.unchanged) {
    const Opened& opened = reading.opened[asked_of];
    if (opened.stamp && is_settled(*opened.stamp, wall_ns(*options_.clock)) &&
        stamp_of_fd(opened.file.fd.get()) == opened.stamp) {
      revision.stamp = opened.stamp;
    }
  }
  return {};
}

FileFetcher::Files::Outcome FileFetcher::Files::read(const FileRange& range, Opened& opened,
                                                     std::byte* out, std::uint64_t& done_bytes,
                                                     std::uint64_t& left_at_once,
                                                     bool may_block) const {
  const OpenFile& file = opened.file;
  const bool whole = range.size_bytes == PartRequest::kToItsEnd;
  const std::uint64_t size = opened.size_bytes;
  // Of a whole file a byte more than there should be; the next range is read over it.
  const std::uint64_t wanted = whole ? size + 1 : size;
  while (done_bytes < size || (whole && size == 0)) {
    if (left_at_once == 0) return {Outcome::Kind::kWouldBlock, {}};
    const std::span<std::byte> rest(out + done_bytes, std::min(wanted - done_bytes, left_at_once));
    const std::uint64_t at = range.offset + done_bytes;
    const ssize_t count = may_block ? disk_of(range).read(file, rest, at)
                                    : disk_of(range).read_cached(file, rest, at);
    if (count < 0) {
      // EAGAIN: not in the page cache. The others: this file system cannot tell.
      const bool blocks =
          count == -EAGAIN || count == -EOPNOTSUPP || count == -ENOSYS || count == -EINVAL;
      if (!may_block && blocks) return {Outcome::Kind::kWouldBlock, {}};
      return failed(static_cast<int>(-count), "cannot read", range);
    }
    if (count == 0) {
      if (size == 0) break;
      // Some kernels answer so for what is not in the page cache.
      if (!may_block) return {Outcome::Kind::kWouldBlock, {}};
      return not_as_listed(range, " became shorter while it was read");
    }
    done_bytes += static_cast<std::uint64_t>(count);
    left_at_once -= std::min<std::uint64_t>(left_at_once, static_cast<std::uint64_t>(count));
  }
  if (done_bytes > size) return not_as_listed(range, " became longer while it was read");
  if (range.expected) {
    const std::optional<ItemStamp> now = stamp_of_fd(file.fd.get());
    if (!now || !opened.stamp || !same_size_and_time(*now, *opened.stamp))
      return not_as_listed(range, " changed while it was read");
  }
  return {};
}

FileFetcher::Files::Outcome FileFetcher::Files::not_as_listed(const FileRange& range,
                                                              const std::string& how) const {
  return {Outcome::Kind::kFailed,
          Status(Code::kDataLoss,
                 path_of(range) + how +
                     (range.expected ? "; bring it back as it was, or apply the pipeline again, "
                                       "which indexes it anew ('spdlctl index' does that "
                                       "ahead of it)"
                                     : "; leave a dataset as it is while it is in use"))};
}

FileFetcher::Files::Outcome FileFetcher::Files::failed(int err, const char* what,
                                                       const FileRange& range,
                                                       const std::string& why) const {
  const std::string path = path_of(range);
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
      // What was never seen is the data's fault, and what goes while it is in use somebody's.
      status =
          range.listed
              ? Status(Code::kNotFound, path +
                                            " is gone since the dataset was listed; restore "
                                            "it, or apply the pipeline again")
              : Status(Code::kDataLoss, path +
                                            " is not there, though the dataset names it; bring "
                                            "it there, or take it out of the dataset");
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

std::string FileFetcher::Files::path_of(const FileRange& range) const {
  const std::string& root = roots_[range.root].path;
  return (root == "/" ? "" : root) + "/" + range.uri;
}

std::vector<FileFetcher::Root> one_root(std::string path, std::unique_ptr<Disk> disk) {
  std::vector<FileFetcher::Root> roots;
  roots.push_back({.path = std::move(path), .disk = std::move(disk)});
  return roots;
}

}  // namespace spdld::source
