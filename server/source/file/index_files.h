// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "source/item/item_bytes.h"

namespace spdld::source {

// The files in which a directory keeps indexes of one kind: whole ones, whose names have an ending
// of their own, and parts of those that are being made. Builds of several processes may use the
// directory at once. Names are relative to it. Immutable; any thread.
class IndexFiles {
 public:
  // `directory` empty: nothing is kept. `whole_ending` lives for ever: ".tarindex".
  IndexFiles(std::string directory, std::string_view whole_ending)
      : directory_(std::move(directory)), whole_ending_(whole_ending) {}

  bool keeps() const { return !directory_.empty(); }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  bool is_whole(std::string_view name) const { return name.ends_with(whole_ending_); }
  static bool is_part(std::string_view name) { return name.ends_with(kPartEnding); }
  // The name of the file with the whole index that is called `index`, and the other way round.
  std::string whole(const std::string& index) const { return index + std::string(whole_ending_); }
  std::string index_of(const std::string& whole) const {
    return whole.substr(0, whole.size() - whole_ending_.size());
  }
  static std::string part(const std::string& stem) { return stem + std::string(kPartEnding); }

  // The files whose names begin with `prefix`, those written last first.
  std::vector<std::string> names(std::string_view prefix) const;
  // Makes the file look as if it were written now, so that it is not collected for a while.
  void touch(const std::string& name) const;
  // A file that cannot be removed costs room alone, until it is collected.
  void remove(const std::string& name) const;

 private:
  static constexpr std::string_view kPartEnding = ".part";

  const std::string directory_;
  const std::string_view whole_ending_;
};

// The time that is_settled() compares stamps with.
std::int64_t wall_clock_ns();

}  // namespace spdld::source
