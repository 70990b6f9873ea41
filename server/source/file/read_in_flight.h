// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory/buffer_memory.h"
#include "source/file/io_pool.h"
#include "source/file/pending_read.h"
#include "source/file/range_reader.h"
#include "source/file/retry_pauses.h"
#include "source/item/indexed_files.h"

namespace spdld::source {

// The read of one item that could not be done at once: what is left of it runs in the I/O pool,
// waits there for room among its reader's buffers, without a thread and with its files closed, and
// is retried after transient errors.
//
// Owned by the pool that runs it; run() is called by one of its threads at a time. It goes on when
// its fetcher is gone, since the kernel may have a read of it; its sink has been told by then
// (PendingReads). Failures are told to the sink, and name the item's first file.
class ReadInFlight final : public PendingRead {
 public:
  // How the attempt of the caller's own thread ended, which this goes on from.
  struct Start {
    RangeReader::Progress progress;
    std::uint64_t wanted_bytes = 0;  // of room, before the files are opened
    // It failed: until the next attempt.
    std::optional<std::chrono::nanoseconds> pause;
  };

  ReadInFlight(std::shared_ptr<const RangeReader> reader, const RetryPauses& pauses, Start start,
               std::shared_ptr<PendingReads> reads, ItemBytes& out, FetchSink& sink,
               std::uint64_t token, IoPool& io);

  std::optional<std::chrono::nanoseconds> run() override;

 private:
  // False: run() is called again when there may be.
  bool has_room();
  Status cancelled() const override;

  const std::shared_ptr<const RangeReader> reader_;
  const RetryPauses pauses_;
  const std::string uri_;  // of the item's first file
  const std::string path_;
  // What the item's ranges name, which the source that laid them out had until it went.
  std::vector<std::shared_ptr<const IndexedFiles>> indexed_;
  RangeReader::Progress progress_;
  IoPool& io_;
  BufferMemory::Request room_;
  std::uint64_t wanted_bytes_;  // of room, before the files are opened
  int failures_;
  std::optional<std::chrono::nanoseconds> first_pause_;
};

}  // namespace spdld::source
