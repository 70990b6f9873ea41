// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "source/file/held_files.h"
#include "source/file/range_reader.h"
#include "source/item/fetched_item.h"
#include "source/item/read_windows.h"

namespace spdld::source {

// Brings what the page cache holds of items that lie in files with an index, many items at once. A
// file is compared with its index before its first range is read, and with its stamp after the last
// one; until then no item of it counts as brought. With `windows`, the neighbourhood of a small
// item is read with it and kept for later items.
//
// Owned by a FileFetcher; thread-safe.
class HeldReader {
 public:
  // One call brings no more. These bytes do not count among buffers: each worker has one call.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  // One call reads no more windows of one file; they do not count either.
  static constexpr std::size_t kMostFresh = 16;

  // `windows`: null: no window is read.
  HeldReader(std::shared_ptr<const RangeReader> reader, std::shared_ptr<ReadWindows> windows,
             std::shared_ptr<HeldFiles> files)
      : reader_(std::move(reader)), windows_(std::move(windows)), files_(std::move(files)) {}

  // An item that is not brought is to be fetched by itself, which also tells what is wrong with it.
  // Never blocks.
  void bring(std::span<WantedItem> items);

 private:
  // A range of an item.
  struct Piece {
    std::size_t item = 0;
    std::size_t range = 0;
  };

  // Of one file, in one call.
  struct Windows {
    ReadWindows::WindowPtr last;                // that an item came from
    std::vector<ReadWindows::WindowPtr> fresh;  // read, and not yet known to others
  };

  void bring_from_file(std::span<WantedItem> items, std::span<const Piece> pieces);
  // Whether `out` is filled.
  bool read(const HeldFiles::Held& held, Disk& disk, const FileRange& range,
            std::span<std::byte> out, Windows& windows);

  const std::shared_ptr<const RangeReader> reader_;
  const std::shared_ptr<ReadWindows> windows_;
  const std::shared_ptr<HeldFiles> files_;
};

}  // namespace spdld::source
