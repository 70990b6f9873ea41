// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "source/file/disk.h"
#include "source/file/io_pool.h"
#include "source/item/item_bytes.h"

namespace spdld::source {

// Files that many items lie in, kept open from one read to the next. While a file is read, its name
// is opened anew every 100 ms, to see whether it leads to another file by now. A file that has not
// been read for some seconds is closed: it keeps nobody from unmounting its file system, and takes
// no room once it is deleted. The process holds no more files than a quarter of its descriptors;
// beyond that, a file is opened for each caller alone.
//
// Shared by a HeldReader and the pool's task that closes files; thread-safe.
class HeldFiles : public std::enable_shared_from_this<HeldFiles> {
 public:
  static constexpr std::chrono::nanoseconds kUnused = std::chrono::seconds(5);

  // A file is closed when it was not read for `unused`. The pool outlives this.
  explicit HeldFiles(IoPool& io, std::chrono::nanoseconds unused = kUnused)
      : io_(io), unused_(unused) {}

  struct Held {
    OpenFile file;
    ItemStamp stamp;  // as it was opened

    Held() = default;
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    bool counts = false;  // among the files that the process holds
  };
  using HeldPtr = std::shared_ptr<const Held>;

  // The file of `range`, which an index has under a number. Null: it is not there, or it cannot be
  // opened without waiting.
  HeldPtr get(const FileRange& range, Disk& disk) SPDLD_EXCLUDES(mutex_);

 private:
  class Closer;
  using Time = std::chrono::steady_clock::time_point;
  struct Entry {
    HeldPtr held;
    Time looked;
    Time used;
  };
  static constexpr std::chrono::milliseconds kLook{100};

  static HeldPtr open(const FileRange& range, Disk& disk);
  bool start_closer();
  // Returns whether files are held still.
  bool close_unused() SPDLD_EXCLUDES(mutex_);

  IoPool& io_;
  const std::chrono::nanoseconds unused_;
  Mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_ SPDLD_GUARDED_BY(mutex_);  // by number
  bool has_closer_ SPDLD_GUARDED_BY(mutex_) = false;  // or is about to have
};

}  // namespace spdld::source
