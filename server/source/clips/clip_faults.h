// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "source/item/source.h"

namespace spdld::source {

// A fault of files from which clips are cut, and how often there is one.
struct ClipFault {
  std::string reason;       // "without video"
  std::uint64_t count = 0;  // of files, or of times
  bool of_times = false;
  std::string example;  // the first one, with more that is known of it
  Status status;        // what it is where such files are errors; ok: they are fine as they are
};

// What was wrong with files of a source, counted by reason, in the order in which each was found
// first. Belongs to one thread.
class ClipFaults {
 public:
  explicit ClipFaults(const Source& source) : source_(source) {}

  // `item`: the file's, in the source. `more` stands behind the name of the example.
  void add(const std::string& reason, std::uint64_t item, const Status& status = {},
           const std::string& more = {});
  // So many times that are asked for of a file have this fault; `more` tells the first.
  void add_times(const std::string& reason, std::uint64_t item, std::uint64_t count,
                 const std::string& more);
  // Of a file that the index could not be made of, for this reason.
  void add_unreadable(std::uint64_t item, Code code, std::string_view why);

  const std::vector<ClipFault>& all() const { return faults_; }

 private:
  ClipFault& find(const std::string& reason, std::uint64_t item, const std::string& more);

  const Source& source_;
  std::vector<ClipFault> faults_;
};

}  // namespace spdld::source
