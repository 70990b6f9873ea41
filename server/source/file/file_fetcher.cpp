// SPDX-License-Identifier: Apache-2.0
#include "source/file/file_fetcher.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/memory/no_memory.h"
#include "source/bytes/path_error.h"
#include "source/file/read_in_flight.h"
#include "source/file/source_options.h"

namespace spdld::source {
namespace {

// A range of a file that stays open for the code that indexes it. Its owner's threads may call it
// at once; it may outlast the fetcher that opened it. Reads block, nothing is retried, and an error
// names the file.
class FilePart final : public PartBytes {
 public:
  FilePart(std::shared_ptr<const RangeReader> reader, FileRange range, RangeReader::Opened opened)
      : reader_(std::move(reader)),
        range_(std::move(range)),
        path_(reader_->path_of(range_)),
        file_(std::move(opened.file)),
        size_(opened.size_bytes) {}

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  std::optional<ItemStamp> stamp() const override { return stamp_of_fd(file_.fd.get()); }
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override {
    if (offset >= size_) return std::size_t{0};
    out = out.first(std::min<std::uint64_t>(out.size(), size_ - offset));
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = reader_->disk_of(range_).read(
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
  const std::shared_ptr<const RangeReader> reader_;
  const FileRange range_;
  const std::string path_;
  const OpenFile file_;
  const std::uint64_t size_;
};

}  // namespace

FileFetcher::Options FileFetcher::options_of(const SourceOptions& options) {
  return {.reading = {.max_item_bytes = options.max_file_bytes, .buffers = options.buffers},
          .retry = options.retry,
          .retry_pause = options.retry_pause};
}

FileFetcher::FileFetcher(std::vector<FileRoot> roots, IoPool& io, uid_t reader, Options options)
    : reader_(std::make_shared<const RangeReader>(std::move(roots), reader,
                                                  std::move(options.reading))),
      pauses_(options.retry, options.retry_pause),
      pending_(std::make_shared<PendingReads>()),
      io_(io) {}

Status FileFetcher::check_parts(std::size_t parts, const std::string& key) {
  if (parts <= RangeReader::kMostRanges) return {};
  return {Code::kInvalidArgument, key + ": an item has " + std::to_string(parts) +
                                      " files, and may have " +
                                      std::to_string(RangeReader::kMostRanges) +
                                      ": name fewer, or pack them as tar shards"};
}

FileFetcher::~FileFetcher() { pending_->close(io_); }

Result<FetchState> FileFetcher::fetch(ItemBytes& out, FetchSink& sink, std::uint64_t token) {
  SPDLD_CHECK(!out.ranges().empty() && out.ranges().size() <= RangeReader::kMostRanges);
  out.revision.stamp.reset();
  out.revision.unchanged = false;
  RangeReader::Progress progress;
  RangeReader::Outcome outcome = reader_->advance(out, progress, false);
  using Kind = RangeReader::Outcome::Kind;
  if (outcome.kind == Kind::kDone) return FetchState::kReady;
  if (outcome.kind == Kind::kFailed) return tl::unexpected(std::move(outcome.status));

  const dev_t device = progress.next_device();
  if (outcome.kind == Kind::kNoRoom) progress = {};
  std::optional<std::chrono::nanoseconds> pause;
  if (outcome.kind == Kind::kTransient) {
    if (pauses_.retries() <= 0) {
      if (outcome.status.code() == kNoMemory) return tl::unexpected(std::move(outcome.status));
      return error(Code::kUnavailable, outcome.status.message() +
                                           ", and retries are off; see that its storage answers");
    }
    progress = {};
    pause = pauses_.pause(1, out.ranges().front().uri);
  }
  const auto pending = std::make_shared<ReadInFlight>(
      reader_, pauses_,
      ReadInFlight::Start{
          .progress = std::move(progress), .wanted_bytes = outcome.wanted_bytes, .pause = pause},
      pending_, out, sink, token, io_);
  if (Status status = pending_->submit(io_, device, reader_->reader(), pending); !status.ok())
    return tl::unexpected(std::move(status));
  return FetchState::kPending;
}

Result<std::unique_ptr<PartBytes>> FileFetcher::open(const ItemBytes& item) const {
  SPDLD_CHECK(item.ranges().size() == 1 && item.places() == 1);
  const FileRange& range = item.ranges()[0];
  RangeReader::Opened opened;
  RangeReader::Outcome outcome = reader_->open(range, opened, false);
  if (outcome.kind != RangeReader::Outcome::Kind::kDone)
    return tl::unexpected(std::move(outcome.status));
  return std::make_unique<FilePart>(reader_, range, std::move(opened));
}

std::vector<FileRoot> one_root(std::string path, std::unique_ptr<Disk> disk) {
  std::vector<FileRoot> roots;
  roots.push_back({.path = std::move(path), .disk = std::move(disk)});
  return roots;
}

}  // namespace spdld::source
