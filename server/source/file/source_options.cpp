// SPDX-License-Identifier: Apache-2.0
#include "source/file/source_options.h"

#include "source/file/disk.h"

namespace spdld::source {

SourceOptions::SourceOptions(IoPool& pool)
    : io(pool), reader(Access::trusted()), memory(ListingMemory::unbounded()) {}
SourceOptions::SourceOptions(SourceOptions&&) noexcept = default;
SourceOptions::~SourceOptions() = default;

SourceOptions SourceOptions::for_another() const {
  SourceOptions other(io);
  other.kept = kept;
  other.prober = prober;
  other.open_call = open_call;
  other.wait_for_runners = wait_for_runners;
  other.may_wait_for_runners = may_wait_for_runners;
  other.dataset = dataset;
  other.from_kept_alone = from_kept_alone;
  other.access = access;
  other.reader = reader;
  other.classes = classes;
  other.retry = retry;
  other.retry_pause = retry_pause;
  other.max_file_bytes = max_file_bytes;
  other.buffers = buffers;
  other.windows = windows;
  other.memory = memory;
  other.max_items = max_items;
  other.max_directories = max_directories;
  other.listing_threads = listing_threads;
  other.progress = progress;
  other.fail_on_bad_rows = fail_on_bad_rows;
  other.stop = stop;
  other.warnings = warnings;
  return other;
}

}  // namespace spdld::source
