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
#include "source/item/item_bytes.h"

namespace spdld::source {

// Files that many items lie in, kept open from one read to the next. While a file is read, its name
// is opened anew every 100 ms, to see whether it leads to another file by now. A file that has not
// been read for some seconds is closed when the next name is opened. The process holds no more
// files than a quarter of its descriptors; beyond that, a file is opened for each caller alone.
//
// Owned by a HeldReader; thread-safe.
class HeldFiles {
 public:
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
  using Time = std::chrono::steady_clock::time_point;
  struct Entry {
    HeldPtr held;
    Time looked;
    Time used;
  };
  static constexpr std::chrono::milliseconds kLook{100};
  static constexpr std::chrono::seconds kUnused{5};

  static HeldPtr open(const FileRange& range, Disk& disk);
  void drop_unused(Time now, std::vector<HeldPtr>& closed) SPDLD_REQUIRES(mutex_);

  Mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_ SPDLD_GUARDED_BY(mutex_);  // by number
  Time looked_for_unused_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::source
