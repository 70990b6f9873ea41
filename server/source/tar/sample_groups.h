// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "source/bytes/file_bytes.h"
#include "source/tar/tar_reader.h"

namespace spdld::source {

// Why a member belongs to no sample, or a sample to no item.
enum class Skipped : std::uint8_t {
  kDirectory,
  kLink,      // hard or symbolic
  kSpecial,   // devices, fifos and what other programs have put there
  kMetadata,  // __x__, or below a directory of such a name
  kHidden,    // the base name begins with a dot
  kNoSuffix,  // the base name has no dot
  kSample,    // a whole sample, which lacks something, under `missing: skip`
};
inline constexpr std::size_t kSkippedReasons = 7;
using SkippedCounts = std::array<std::uint64_t, kSkippedReasons>;

// "directories", "links", ...
std::string_view skipped_name(Skipped reason);

// A member's name as WebDataset cuts it, at the first dot of the base name. Views of the name.
struct SampleName {
  std::string_view key;
  std::string_view suffix;
};
// Nothing: the name says that its member belongs to no sample, for that reason.
std::optional<SampleName> sample_name(std::string_view name, Skipped& why_not);

// Members with one key.
struct TarSample {
  struct Member {
    std::string suffix;  // in lower case
    std::uint64_t header_offset = 0;
    std::uint64_t data_offset = 0;
    std::uint64_t size = 0;
  };
  std::string key;
  std::uint64_t header_offset = 0;  // of its first member
  std::vector<Member> members;      // no two with one suffix
};

// Makes samples of the members of one shard, as WebDataset does: consecutive members with one key
// are a sample, and those that belong to none do not come between. One thread.
class SampleGroups {
 public:
  static constexpr std::size_t kMaxMembers = 100'000;  // of one sample

  // `shard`: for messages.
  explicit SampleGroups(std::string shard) : shard_(std::move(shard)) {}

  enum class Added {
    kSkipped,  // it belongs to no sample
    kMember,   // to the sample that the one before belongs to
    kFirst,    // to a new one: take() gives the one before, if there was any
  };
  // An error: two members of a sample have one suffix, or there are too many.
  Result<Added> add(const TarMember& member);
  // After the last member; take() gives the last sample.
  void finish();
  // The sample that ended with the latest add() or finish(); null: none did. Valid until the next.
  const TarSample* take() const { return has_done_ ? &done_ : nullptr; }

  // The suffix of the member that was added last, if it was not skipped.
  const std::string& suffix() const { return current_.members[held_ - 1].suffix; }
  const SkippedCounts& skipped() const { return skipped_; }

  // Whether each key came once. An error names the first that came again, and both places; it reads
  // their names from `file`.
  Status check_unique(FileBytes& file);

 private:
  void end_sample();
  Status add_to_current(std::string_view suffix, const TarMember& member);
  std::optional<std::uint64_t> earlier(std::string_view suffix) const;

  const std::string shard_;
  TarSample current_;     // members_ beyond held_ are kept for their memory
  std::size_t held_ = 0;  // of current_.members; 0: there is no sample yet
  std::unordered_map<std::string, std::uint64_t> by_suffix_;  // of a current_ with many members
  TarSample done_;
  bool has_done_ = false;
  SkippedCounts skipped_{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> keys_;  // hash, header_offset
};

}  // namespace spdld::source
