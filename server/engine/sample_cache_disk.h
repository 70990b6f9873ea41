// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "engine/sample_cache_log.h"
#include "source/io_pool.h"

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
// there can still be read. The destructor drops the queue and waits for the write and the reads
// that are under way.
class DiskLog final : public CacheLog {
 public:
  DiskLog(UniqueFd file, source::IoPool& io,
          std::uint64_t max_queued_bytes = std::uint64_t{64} << 20);
  ~DiskLog() override;
  DiskLog(const DiskLog&) = delete;
  DiskLog& operator=(const DiskLog&) = delete;

  void append(std::uint64_t item, std::span<const std::byte> bytes, Sink& sink) override
      SPDLD_EXCLUDES(mutex_);
  const std::byte* view(std::uint64_t) const override { return nullptr; }
  Result<source::FetchState> read(std::uint64_t location, std::uint64_t size_bytes, ByteBuffer& out,
                                  source::FetchSink& sink, std::uint64_t token) override
      SPDLD_EXCLUDES(mutex_);
  Status failure() const override SPDLD_EXCLUDES(mutex_);

 private:
  class Writer;
  class Reader;
  struct Queued {
    std::uint64_t item = 0;
    Sink* sink = nullptr;
    std::vector<std::byte> bytes;
  };

  // At the end of the file; false: that was the last one, and failure() says why.
  bool write(const std::vector<std::byte>& bytes) SPDLD_EXCLUDES(mutex_);
  void take_queued(std::size_t count, std::deque<Queued>& into) SPDLD_REQUIRES(mutex_);
  Reader& borrow() SPDLD_EXCLUDES(mutex_);
  void give_back(Reader& reader) SPDLD_EXCLUDES(mutex_);

  const UniqueFd file_;
  const dev_t device_;
  source::IoPool& io_;
  const std::uint64_t max_queued_bytes_;
  std::uint64_t end_ = 0;  // of the file; the writer's alone

  mutable Mutex mutex_;
  CondVar idle_;
  std::deque<Queued> queue_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t queued_bytes_ SPDLD_GUARDED_BY(mutex_) = 0;
  bool writing_ SPDLD_GUARDED_BY(mutex_) = false;  // the pool has the writer
  bool closing_ SPDLD_GUARDED_BY(mutex_) = false;
  Status failure_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Reader>> readers_ SPDLD_GUARDED_BY(mutex_);
  std::vector<Reader*> free_readers_ SPDLD_GUARDED_BY(mutex_);
  const std::unique_ptr<Writer> writer_;
};

}  // namespace spdld::engine
