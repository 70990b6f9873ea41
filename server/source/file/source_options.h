// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/memory/buffer_memory.h"
#include "base/users/listing_memory.h"
#include "op/order_spec.h"
#include "op/row_call.h"
#include "source/file/access.h"
#include "source/file/io_pool.h"
#include "source/file/retry_pauses.h"

namespace spdld::source {

class Disk;
class KeptDatasets;
class MediaProber;
class ReadWindows;

// With what and for whom a source is opened.
struct SourceOptions {
  explicit SourceOptions(IoPool& pool);
  SourceOptions(SourceOptions&&) noexcept;
  ~SourceOptions();
  // The same but for `disk`.
  SourceOptions for_another() const;
  ListingMemory::SharePtr share() const { return memory->share(reader.uid); }

  IoPool& io;                    // outlives the source
  KeptDatasets* kept = nullptr;  // outlives the call; null: nothing is kept
  // Tells what media files hold; outlives `io`. Null: this program reads none.
  const MediaProber* prober = nullptr;
  // The id of what was applied, to be opened as it was; empty: what is there now is listed.
  std::string dataset;
  // What was applied comes from `kept` alone, or is an error: neither its storage nor whether the
  // reader may read it is looked at. For one that is to be closed.
  bool from_kept_alone = false;
  AccessRules access;  // what may be read
  Credentials reader;  // with whose rights; the default's are not compared
  // For ClassesSpec::kPipeline: those of that pipeline; for kFile: what the file had, if that
  // counts.
  std::vector<std::string> classes;
  RetrySpec retry;
  std::chrono::nanoseconds retry_pause = RetryPauses::kFirst;
  std::uint64_t max_file_bytes = std::uint64_t{1} << 30;
  std::shared_ptr<BufferMemory> buffers;  // where bytes count that are brought; null: nowhere
  // Where what lies near an item is kept, for items that are read by neighbours; null: nowhere.
  std::shared_ptr<ReadWindows> windows;
  std::shared_ptr<ListingMemory> memory;  // where what the items take counts for the reader
  std::uint64_t max_items = std::uint64_t{1} << 32;
  // Some hundred bytes each while they are listed, whether anything in them matches or not.
  std::uint64_t max_directories = std::uint64_t{1} << 22;
  int listing_threads = 8;
  // Called while the listing goes on, by the thread that asked for it, with the number of items
  // seen so far and what is being done, where there is more to say than that; at least once.
  std::function<void(std::uint64_t items, const std::string& what)> progress;
  // Of a dataset of the user's own: opens the way to the processes that have it; null: there is
  // none. While these are waited for, wait_for_runners is called with what that is and the pools
  // that no process serves (RowCaller::wanted); where nobody who hears of it would start one, to
  // wait for them is an error.
  std::function<Result<std::shared_ptr<RowCaller>>(const CallSpec&)> open_call;
  std::function<void(const std::string& what, const std::vector<std::string>& pools)>
      wait_for_runners;
  bool may_wait_for_runners = false;
  // What an annotation file has wrong is an error; else it is left out with a warning.
  bool fail_on_bad_rows = false;
  std::stop_token stop;  // ends the listing with kCancelled
  // Gets what the user should know though nothing failed: the listing could not be kept, a class is
  // empty.
  std::vector<std::string>* warnings = nullptr;
  // Reads the files in place of the operating system; for tests.
  std::unique_ptr<Disk> disk;
};

}  // namespace spdld::source
