// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer_memory.h"
#include "base/byte_buffer.h"
#include "base/clock.h"
#include "op/order_spec.h"
#include "source/disk.h"
#include "source/io_pool.h"
#include "source/pending_read.h"
#include "source/source.h"

namespace spdld::source {

// Brings whole files. What the page cache holds is read at once by the caller; the rest goes to the
// I/O pool, from which transient errors are retried with pauses that double, up to five seconds,
// each shortened at random by up to a half so that nodes do not come back in step. A file waits in
// the pool, closed and without a thread, until there is room for it among its reader's buffers.
//
// Owned by a FilesSource; thread-safe. The destructor waits for no read: it tells kCancelled to the
// sinks of those that are pending. One that the kernel has keeps what it needs until it comes back.
// The pool must outlive the fetcher.
class FileFetcher {
 public:
  struct Options {
    std::string root;  // for messages
    RetrySpec retry = {};
    std::chrono::nanoseconds retry_pause{};
    std::uint64_t max_file_bytes = 0;
    // Where the bytes that are brought count, and for whom; null: nowhere.
    std::shared_ptr<BufferMemory> buffers = nullptr;
    uid_t reader = 0;
    // Tells how old a change is.
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  };

  FileFetcher(std::unique_ptr<Disk> disk, IoPool& io, Options options);
  ~FileFetcher();
  FileFetcher(const FileFetcher&) = delete;
  FileFetcher& operator=(const FileFetcher&) = delete;

  // As Source::fetch(), or Source::fetch_revision() where there is a `revision`.
  Result<FetchState> fetch(std::string uri, ByteBuffer& out, FetchSink& sink, std::uint64_t token,
                           Revision* revision = nullptr);

 private:
  class Files;    // what the fetcher and its pending reads share
  class Pending;  // one such read

  const std::shared_ptr<const Files> files_;
  const std::shared_ptr<PendingReads> pending_;
  IoPool& io_;
};

}  // namespace spdld::source
