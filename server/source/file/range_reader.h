// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory/buffer_memory.h"
#include "base/status.h"
#include "source/file/disk.h"
#include "source/file/range_errors.h"
#include "source/item/item_bytes.h"

namespace spdld::source {

// A directory that files lie below.
struct FileRoot {
  std::string path;  // for messages
  std::unique_ptr<Disk> disk;
};

// Reads the ranges of an item: opens all files before it reads the first, then makes room for their
// bytes, then reads one after the other. It attempts each step once, and says in its Outcome why it
// cannot go on; a Progress holds how far an item has come.
//
// Owned by a FileFetcher, its reads in flight and the parts that it opened, whichever lasts
// longest. Immutable; any thread.
class RangeReader {
 public:
  struct Options {
    std::uint64_t max_item_bytes = 0;
    // Where the bytes that are brought count; null: nowhere.
    std::shared_ptr<BufferMemory> buffers = nullptr;
    // Tells how old a change is.
    std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
  };
  // Of one item; a source that needs more is refused when it is opened.
  static constexpr std::size_t kMostRanges = 16;
  // A caller that may not block reads no more than this of one item.
  static constexpr std::size_t kMostAtOnceBytes = std::size_t{4} << 20;

  struct Opened {
    OpenFile file;
    std::uint64_t size_bytes = 0;    // of the range
    bool absent = false;             // the file is not there, and need not be
    std::optional<ItemStamp> stamp;  // when it was opened, where that is asked for
  };
  // How far an item has been read.
  struct Progress {
    std::array<Opened, kMostRanges> opened;
    std::size_t count = 0;         // of `opened`
    dev_t device = 0;              // that the open of the next one may wait for
    bool has_room = false;         // all are open, and the item's buffer is there
    std::size_t range = 0;         // that is being read ...
    std::uint64_t done_bytes = 0;  // ... so far

    // Where the next thing that may block lies.
    dev_t next_device() const { return has_room ? opened[range].file.device : device; }
  };
  struct Outcome {
    enum class Kind { kDone, kWouldBlock, kNoRoom, kTransient, kFailed };
    Kind kind = Kind::kDone;
    Status status;
    std::uint64_t wanted_bytes = 0;  // kNoRoom: of the reader's buffers
  };

  // At least one root. `reader`: the user for whom bytes are brought.
  RangeReader(std::vector<FileRoot> roots, uid_t reader, Options options)
      : roots_(std::move(roots)), reader_(reader), options_(std::move(options)) {}

  // Goes on with the item from `progress`. kWouldBlock only unless it `may_block`. After any
  // outcome but that one `progress` means nothing more.
  Outcome advance(ItemBytes& item, Progress& progress, bool may_block) const;
  struct How {
    bool wants_stamp = false;
    bool may_block = false;  // else a file whose content has to be compared would block
  };
  // One file alone, which Disk::opening() says can be opened as it may be.
  Outcome open(const FileRange& range, Opened& opened, How how) const;

  BufferMemory::Request request_room() const { return {options_.buffers, reader_}; }
  std::string path_of(const FileRange& range) const;
  Disk& disk_of(const FileRange& range) const { return *roots_[range.root].disk; }
  uid_t reader() const { return reader_; }
  std::int64_t wall_ns() const;  // of Options::clock

 private:
  Outcome make_room(ItemBytes& item, Progress& progress) const;
  Outcome read(const FileRange& range, Opened& opened, std::byte* out, std::uint64_t& done_bytes,
               std::uint64_t& left_at_once, bool may_block) const;
  // Whether `out` may take so much now.
  bool count(ByteBuffer& out, std::uint64_t bytes) const;
  Outcome failed(int err, const char* what, const FileRange& range,
                 const std::string& why = {}) const;
  Outcome not_listed_so(const FileRange& range, const std::string& how) const;
  // Whether the open file is what an index saw.
  Outcome check(const ExpectedContent& expected, const FileRange& range, const Opened& opened,
                bool may_block) const;

  const std::vector<FileRoot> roots_;
  const uid_t reader_;
  const Options options_;
};

}  // namespace spdld::source
