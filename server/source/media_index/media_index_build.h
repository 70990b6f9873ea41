// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "source/item/source.h"
#include "source/media_index/media_index.h"
#include "source/media_index/media_prober.h"

namespace spdld::source {

struct MediaIndexProgress {
  std::uint64_t files = 0;
  std::uint64_t done = 0;
  std::uint64_t kept = 0;    // of these: taken from what was kept of an earlier index
  std::uint64_t broken = 0;  // likewise: those that cannot be used
};

struct MediaIndexOptions {
  // Where indexes are kept; made when it is needed. Empty: nothing is kept.
  std::string directory = {};
  int threads = 2;
  // Called while the index is made, by the thread that asked for it; at least once.
  std::function<void(const MediaIndexProgress&)> progress = {};
  std::stop_token stop = {};  // ends it with kCancelled
  // Gets what the user should know though nothing failed.
  std::vector<std::string>* warnings = nullptr;
  // The index counts in it, and asks it as it grows: kResourceExhausted. Null: it asks nobody.
  ListingMemory::SharePtr memory = nullptr;
  // So much work of a thread may be lost if the process dies.
  std::chrono::nanoseconds keep_each = std::chrono::seconds(2);
  // The wall clock in ns, in place of the system's; for tests.
  std::function<std::int64_t()> now_ns = {};
};

struct OpenedMediaIndex {
  std::shared_ptr<const MediaIndex> index;
  std::string name;  // of the file that keeps it, without its ending; empty: it is not kept
};

// Indexes the part of that number of each of the source's items by `prober`, several at once.
// Entries of earlier indexes are taken where the files' sizes and times still are the same.
// Files that `prober` refuses are entries, too; others that cannot be read are errors. Blocks.
//
// An index is kept as options.directory/ORIGIN-DATA.mediaindex: hashes of where the source's bytes
// come from, and of what was found. While it is made, what is done so far is kept as
// ORIGIN-HASH.part, also when it is stopped or fails. What a prober of another version() has found
// is not taken. Several may be made at once, by other processes too: of the parts, a whole index
// replaces those alone whose files it has.
Result<OpenedMediaIndex> open_media_index(const Source& source, std::size_t part,
                                          const MediaProber& prober,
                                          const MediaIndexOptions& options);

// The index of that name as it was kept, whatever the files are by now. kNotFound: there is none;
// kDataLoss: there is something else.
Result<std::shared_ptr<const MediaIndex>> load_media_index(const std::string& directory,
                                                           const std::string& name);

// The file that an index of that name is kept in.
std::string media_index_file_name(const std::string& name);

}  // namespace spdld::source
