// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "source/item/item_bytes.h"

namespace spdld::source {

// Windows of files: pieces of 256 KiB, each of which holds hundreds of small items. An order that
// goes by blocks takes its next items from the windows that it has read last. A window is found by
// its file's stamp: what was read while a file had one settled stamp is what it has whenever it has
// that stamp. Bounded; the window that was used longest ago goes first.
//
// Owned by the daemon and shared by its sources; thread-safe.
class ReadWindows {
 public:
  // A window begins at a multiple of its size.
  static constexpr std::uint64_t kWindowBytes = std::uint64_t{256} << 10;
  // A larger range is read by itself.
  static constexpr std::uint64_t kMostRangeBytes = std::uint64_t{4} << 10;

  struct Window {
    ItemStamp file;
    std::uint64_t number = 0;  // of the window in the file
    std::unique_ptr<std::byte[]> bytes;
  };
  using WindowPtr = std::shared_ptr<const Window>;

  explicit ReadWindows(std::size_t most) : most_(most) {}

  // Null: it is not there.
  WindowPtr find(const ItemStamp& file, std::uint64_t number) SPDLD_EXCLUDES(mutex_);
  void keep(WindowPtr window) SPDLD_EXCLUDES(mutex_);

 private:
  static std::uint64_t key(const ItemStamp& file, std::uint64_t number);

  const std::size_t most_;
  Mutex mutex_;
  std::list<WindowPtr> used_ SPDLD_GUARDED_BY(mutex_);  // the last one first
  std::unordered_map<std::uint64_t, std::list<WindowPtr>::iterator> windows_
      SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::source
