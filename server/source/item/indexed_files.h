// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "base/status.h"
#include "source/bytes/file_bytes.h"
#include "source/item/item_bytes.h"

namespace spdld::source {

// The files that an index was made of, by number. A file whose size and time of change are those
// that the index saw, but whose inode or ctime is another, may be a copy of it, or another file
// that was packed alike: then its content is compared with the index, once for each such change.
//
// Owned by the source that has the index, and by reads in flight. Thread-safe.
class IndexedFiles : public std::enable_shared_from_this<IndexedFiles> {
 public:
  virtual ~IndexedFiles() = default;

  // Whether all that the index says of the file of that number is true of `file`. kDataLoss: it is
  // not, and the message says how they differ, as the end of a sentence about the file; that is so
  // also where `file` cannot be read. Blocks. Several threads may compare one file at once.
  virtual Status compare(std::uint64_t number, FileBytes& file) const = 0;

  // What compare() said of the file when its stamp was `now`; none: it was not asked, or that was
  // forgotten.
  std::optional<Status> known(std::uint64_t number, const ItemStamp& now) const
      SPDLD_EXCLUDES(mutex_);
  void remember(std::uint64_t number, const ItemStamp& now, Status status) SPDLD_EXCLUDES(mutex_);

 private:
  struct Verdict {
    ItemStamp stamp;
    Status status;
  };
  // Some 100 bytes each. When there are more, all are forgotten, and files are compared again.
  static constexpr std::size_t kMostVerdicts = std::size_t{1} << 16;

  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Verdict> verdicts_ SPDLD_GUARDED_BY(mutex_);  // the last ones
};

}  // namespace spdld::source
