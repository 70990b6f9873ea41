// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "source/file/io_pool.h"
#include "source/item/source.h"

namespace spdld::source {

class PendingRead;

// The reads of one owner that are under way and whose sinks have not been told how they ended.
// Shared by the owner and by each of its reads, so that the owner can go while the kernel still has
// some. Thread-safe. Every sink is told exactly once: by the read's end, or before that by close()
// or by the pool that stops.
class PendingReads {
 public:
  // A read of `user`'s. On failure it has not begun, its sink hears nothing, and its buffer is
  // where it was.
  Status submit(IoPool& io, dev_t device, uid_t user, const std::shared_ptr<PendingRead>& read)
      SPDLD_EXCLUDES(mutex_);

  // The owner's last call: tells the sinks of all reads kCancelled, and waits for none of the
  // reads. A sink that a read's thread is just telling may still be told when this returns.
  void close(IoPool& io) SPDLD_EXCLUDES(mutex_);

 private:
  friend class PendingRead;

  // True for the first call of a read: that caller tells the read's sink.
  bool claim(PendingRead& read) SPDLD_EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<PendingRead*> reads_ SPDLD_GUARDED_BY(mutex_);
};

// A fetch that could not be done at once: what the I/O pool runs. It owns the buffer that it reads
// to, and shares what else it touches. The row that asked, its run and the source may all be gone
// before the kernel answers; then the bytes are dropped with the read.
class PendingRead : public IoTask, public std::enable_shared_from_this<PendingRead> {
 public:
  // The read takes what `out` holds, and gives it back when the sink is told, unless the read was
  // cancelled.
  PendingRead(std::shared_ptr<PendingReads> reads, ItemBytes& out, FetchSink& sink,
              std::uint64_t token);

  void cancel() final;

 protected:
  // From run(): it has ended. May destroy the owner.
  std::nullopt_t end(Status status);
  // The status for the sink of a read that was cancelled. Called beside run().
  virtual Status cancelled() const = 0;

  ItemBytes& item() { return item_; }

 private:
  friend class PendingReads;

  void give_back();

  const std::shared_ptr<PendingReads> reads_;
  ItemBytes item_;
  ItemBytes& out_;  // the asker's, to be touched only after claim()
  FetchSink& sink_;
  const std::uint64_t token_;
  static constexpr std::size_t kTold = ~std::size_t{0};
  std::size_t place_ = kTold;  // in reads_; guarded by its mutex
};

}  // namespace spdld::source
