// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/order_spec.h"
#include "source/io_pool.h"
#include "source/source.h"

namespace spdld::source {

class Disk;

struct FilesOptions {
  explicit FilesOptions(IoPool& pool);
  FilesOptions(FilesOptions&&) noexcept;
  ~FilesOptions();

  IoPool& io;                              // outlives the source
  std::string state_dir;                   // where listings are kept; empty: nowhere
  std::vector<std::string> roots = {"/"};  // access.roots: what may be read
  std::vector<std::string> classes;        // for ClassesSpec::kPipeline: those of that pipeline
  std::string field = "image";             // the name of the bytes
  RetrySpec retry;
  std::chrono::nanoseconds retry_pause = std::chrono::milliseconds(50);  // the first; then doubled
  std::uint64_t max_file_bytes = std::uint64_t{1} << 30;
  std::uint64_t max_items = std::uint64_t{1} << 32;
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
// directory it lies in. Blocks until the listing is done, or found unchanged in state_dir.
Result<std::unique_ptr<Source>> open_files(const FilesSpec& spec, FilesOptions options);

}  // namespace spdld::source
