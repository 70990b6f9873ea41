// SPDX-License-Identifier: Apache-2.0
#include "source/file/file_fetcher.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/memory/no_memory.h"
#include "source/file/open_part.h"
#include "source/file/read_in_flight.h"
#include "source/file/source_options.h"

namespace spdld::source {
namespace {

// What a FilePart keeps open.
struct KeptOpen {
  const std::shared_ptr<const RangeReader> reader;
  const OpenFile file;
};

// A range of a file that stays open for the code that indexes it. It may outlast the fetcher that
// opened it.
class FilePart final : private KeptOpen, public OpenPart {
 public:
  FilePart(std::shared_ptr<const RangeReader> by, const FileRange& range,
           RangeReader::Opened opened)
      : KeptOpen{.reader = std::move(by), .file = std::move(opened.file)},
        OpenPart(reader->disk_of(range), file, reader->path_of(range), range.offset,
                 opened.size_bytes) {}
};

}  // namespace

FileFetcher::Options FileFetcher::options_of(const SourceOptions& options) {
  return {.reading = {.max_item_bytes = options.max_file_bytes, .buffers = options.buffers},
          .retry = options.retry,
          .retry_pause = options.retry_pause,
          .windows = options.windows};
}

FileFetcher::FileFetcher(std::vector<FileRoot> roots, IoPool& io, uid_t reader, Options options)
    : reader_(std::make_shared<const RangeReader>(std::move(roots), reader,
                                                  std::move(options.reading))),
      held_(reader_, std::move(options.windows), std::make_shared<HeldFiles>(io)),
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
  RangeReader::Outcome outcome =
      reader_->open(range, opened, {.wants_stamp = false, .may_block = true});
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
