// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/cache/sample_cache_log.h"
#include "posix/unique_fd.h"
#include "source/file/io_pool.h"
#include "source/file/pending_read.h"

namespace spdld::engine {

// A file in `dir`, which is made if it is not there, that has no name: whatever becomes of the
// daemon, nothing is left behind. A cache would not be worth keeping over a restart: its index
// would have to be made safe against crashes on the way of every item, to spare one epoch.
Result<UniqueFd> open_unnamed_file(const std::string& dir);

// A log in a file. Writing is the I/O pool's, from a queue of copies: what finds the queue full is
// dropped, so that a slow disk costs hits and never a batch's time. Reading tries the page cache
// on the caller's thread and leaves what would block to the pool.
//
// Owned by a SampleCache; thread-safe. A write that fails (a full disk) is the last one: what is
// there can still be read. The destructor drops the queue and waits for no disk: the write and the
// reads that are under way keep what they need, and their sinks are told before it returns. The
// pool must outlive the log.
class DiskLog final : public CacheLog {
 public:
  DiskLog(UniqueFd file, source::IoPool& io,
          std::uint64_t max_queued_bytes = std::uint64_t{64} << 20);
  ~DiskLog() override;
  DiskLog(const DiskLog&) = delete;
  DiskLog& operator=(const DiskLog&) = delete;

  void append(std::uint64_t item, std::span<const std::byte> bytes, Sink& sink) override;
  const std::byte* view(std::uint64_t) const override { return nullptr; }
  Result<source::FetchState> read(std::uint64_t location, std::uint64_t size_bytes,
                                  source::ItemBytes& out, source::FetchSink& sink,
                                  std::uint64_t token) override;
  Status failure() const override;

 private:
  class Queue;   // what the log and its writer share
  class Writer;  // the I/O pool's task that empties it
  class Reader;

  const std::shared_ptr<const UniqueFd> file_;
  const dev_t device_;
  source::IoPool& io_;
  const std::shared_ptr<Queue> queue_;
  const std::shared_ptr<Writer> writer_;
  const std::shared_ptr<source::PendingReads> reads_;
};

}  // namespace spdld::engine
