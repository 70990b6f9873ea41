// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "op/order_spec.h"
#include "source/file/access.h"
#include "source/listing/listing.h"

namespace spdld::source {

// The names of the classes in index order, as `spec` says. `known` are those of the pipeline that
// it may refer to, or those that its file had when that was read first, if any. Names are unique
// and single parts of a path. `memory` is asked for what a file of names takes, also while it is
// looked at; null: nobody is.
Result<std::vector<std::string>> class_names(const ClassesSpec& spec, const Listing& listing,
                                             const std::vector<std::string>& known,
                                             const Access& access, ListingMemory::Share* memory);

// What the names take in memory.
std::uint64_t memory_bytes(const std::vector<std::string>& classes);

// The class of each of listing.runs(). An error names a file that is in none.
Result<std::vector<std::int64_t>> label_runs(const Listing& listing,
                                             const std::vector<std::string>& classes);

}  // namespace spdld::source
