// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_buffer.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "op/order_spec.h"
#include "source/disk.h"
#include "source/io_pool.h"
#include "source/source.h"

namespace spdld::source {

// Brings whole files. What the page cache holds is read at once by the caller; the rest goes to the
// I/O pool, from which transient errors are retried with pauses that double, up to five seconds,
// each shortened at random by up to a half so that nodes do not come back in step.
//
// Owned by a FilesSource; thread-safe. The destructor ends pauses and waits for what is pending:
// its sinks hear kCancelled, so they must live until then, as must the pool.
class FileFetcher {
 public:
  struct Options {
    std::string root;  // for messages
    RetrySpec retry;
    std::chrono::nanoseconds retry_pause{};
    std::uint64_t max_file_bytes = 0;
    // Tells how old a change is.
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  };

  FileFetcher(std::unique_ptr<Disk> disk, IoPool& io, Options options);
  ~FileFetcher();
  FileFetcher(const FileFetcher&) = delete;
  FileFetcher& operator=(const FileFetcher&) = delete;

  // As Source::fetch(), or Source::fetch_revision() where there is a `revision`.
  Result<FetchState> fetch(std::string uri, ByteBuffer& out, FetchSink& sink, std::uint64_t token,
                           Revision* revision = nullptr) SPDLD_EXCLUDES(mutex_);

 private:
  class Pending;

  // How far a file has been read.
  struct Reading {
    OpenFile file;
    std::size_t done_bytes = 0;
    std::optional<ItemStamp> stamp;  // when it was opened; only for a revision
  };
  struct Outcome {
    enum class Kind { kDone, kWouldBlock, kTransient, kFailed };
    Kind kind = Kind::kDone;
    Status status;
  };

  Outcome advance(const std::string& uri, Reading& reading, ByteBuffer& out, Revision* revision,
                  bool may_block);
  Outcome open(const std::string& uri, Reading& reading, ByteBuffer& out, Revision* revision);
  Outcome failed(int err, const char* what, const std::string& uri) const;
  std::chrono::nanoseconds pause(int failures, const std::string& uri) const;
  std::string path_of(const std::string& uri) const;
  Pending& borrow() SPDLD_EXCLUDES(mutex_);
  void give_back(Pending& pending) SPDLD_EXCLUDES(mutex_);
  bool closing() SPDLD_EXCLUDES(mutex_);

  const std::unique_ptr<Disk> disk_;
  IoPool& io_;
  const Options options_;
  const std::uint64_t jitter_key_;

  Mutex mutex_;
  CondVar idle_;
  std::vector<std::unique_ptr<Pending>> all_ SPDLD_GUARDED_BY(mutex_);
  std::vector<Pending*> free_ SPDLD_GUARDED_BY(mutex_);
  bool closing_ SPDLD_GUARDED_BY(mutex_) = false;
};

}  // namespace spdld::source
