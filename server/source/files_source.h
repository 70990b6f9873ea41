// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/buffer_memory.h"
#include "base/status.h"
#include "op/order_spec.h"
#include "source/access.h"
#include "source/io_pool.h"
#include "source/source.h"

namespace spdld::source {

class Disk;
class KeptListings;

struct FilesOptions {
  explicit FilesOptions(IoPool& pool);
  FilesOptions(FilesOptions&&) noexcept;
  ~FilesOptions();

  IoPool& io;                    // outlives the source
  KeptListings* kept = nullptr;  // outlives the call; null: nothing is kept
  // The id of what was applied, to be opened as it was; empty: what is there now is listed.
  std::string dataset;
  AccessRules access;  // what may be read
  Credentials reader;  // with whose rights; the default's are not compared
  // For ClassesSpec::kPipeline: those of that pipeline; for kFile: what the file had, if that
  // counts.
  std::vector<std::string> classes;
  RetrySpec retry;
  std::chrono::nanoseconds retry_pause = std::chrono::milliseconds(50);  // the first; then doubled
  std::uint64_t max_file_bytes = std::uint64_t{1} << 30;
  std::shared_ptr<BufferMemory> buffers;  // where bytes count that are brought; null: nowhere
  std::uint64_t max_items = std::uint64_t{1} << 32;
  // Some hundred bytes each while they are listed, whether anything in them matches or not.
  std::uint64_t max_directories = std::uint64_t{1} << 22;
  int listing_threads = 8;
  // Called while the listing goes on, by the thread that called open_files(), with the number of
  // files seen so far; at least once.
  std::function<void(std::uint64_t)> progress;
  std::stop_token stop;  // ends the listing with kCancelled
  // Gets what the user should know though nothing failed: the listing could not be kept, a class is
  // empty.
  std::vector<std::string>* warnings = nullptr;
  // Reads the files in place of the operating system; for tests.
  std::unique_ptr<Disk> disk;
};

// The files below a directory whose relative path matches spec.pattern (source/glob.h says how),
// in the bytewise order of these paths. With label: parent_dir, an item's class is the top-level
// directory it lies in. Blocks until the listing is done, or the one that is kept is found to be as
// things are. What was applied (options.dataset) is opened without a look at what is in the
// directories by now. Either way the reader must be allowed to list each directory.
Result<std::unique_ptr<Source>> open_files(const FilesSpec& spec, FilesOptions options);

}  // namespace spdld::source
