// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "op/order_spec.h"
#include "source/file/held_reader.h"
#include "source/file/io_pool.h"
#include "source/file/pending_read.h"
#include "source/file/range_reader.h"
#include "source/file/retry_pauses.h"
#include "source/item/source.h"

namespace spdld::source {

struct SourceOptions;

// Brings files and pieces of files: the ranges of an item, all of them or none. What the page
// cache holds is read at once by the caller, up to RangeReader::kMostAtOnceBytes; the rest goes to
// the I/O pool as a ReadInFlight. All files of an item are opened before the first is read: then
// its size is known, and it waits in the pool, closed and without a thread, until there is room for
// it among its reader's buffers.
//
// Owned by a source; thread-safe. The destructor waits for no read: it tells kCancelled to the
// sinks of those that are pending. One that the kernel has keeps what it needs until it comes back.
// The pool must outlive the fetcher.
class FileFetcher {
 public:
  struct Options {
    RangeReader::Options reading = {};
    RetrySpec retry = {};
    std::chrono::nanoseconds retry_pause{};
    std::shared_ptr<ReadWindows> windows = nullptr;  // HeldReader's
  };
  static Options options_of(const SourceOptions& options);

  // As RangeReader().
  FileFetcher(std::vector<FileRoot> roots, IoPool& io, uid_t reader, Options options);
  ~FileFetcher();
  FileFetcher(const FileFetcher&) = delete;
  FileFetcher& operator=(const FileFetcher&) = delete;

  // Whether items of so many files can be fetched; `key` is the pipeline's that names them.
  static Status check_parts(std::size_t parts, const std::string& key);

  // As Source::fetch(), of what out.ranges() names: 1 to RangeReader::kMostRanges of them.
  Result<FetchState> fetch(ItemBytes& out, FetchSink& sink, std::uint64_t token);

  // As Source::bring_at_hand(), of what the items' ranges name.
  void bring_at_hand(std::span<WantedItem> items) { held_.bring(items); }

  // The part of the only request that `item` was laid out for, as Source::open_part().
  Result<std::unique_ptr<PartBytes>> open(const ItemBytes& item) const;

 private:
  const std::shared_ptr<const RangeReader> reader_;
  HeldReader held_;
  const RetryPauses pauses_;
  const std::shared_ptr<PendingReads> pending_;
  IoPool& io_;
};

std::vector<FileRoot> one_root(std::string path, std::unique_ptr<Disk> disk);

}  // namespace spdld::source
