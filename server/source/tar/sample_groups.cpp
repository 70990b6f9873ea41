// SPDX-License-Identifier: Apache-2.0
#include "source/tar/sample_groups.h"

#include <xxhash.h>

#include <algorithm>

#include "base/text/ascii.h"
#include "base/text/printable.h"
#include "source/tar/archive_kind.h"

namespace spdld::source {
namespace {

// Members of a sample that are compared one by one.
constexpr std::size_t kFew = 32;

// "__x__" and what lies below a directory that is called so.
bool is_metadata(std::string_view name) {
  const std::string_view first = name.substr(0, std::min(name.find('/'), name.size()));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

std::optional<Skipped> skipped_type(TarMember::Type type) {
  switch (type) {
    case TarMember::Type::kFile: return std::nullopt;
    case TarMember::Type::kDirectory: return Skipped::kDirectory;
    case TarMember::Type::kHardLink:
    case TarMember::Type::kSymlink: return Skipped::kLink;
    case TarMember::Type::kDevice:
    case TarMember::Type::kFifo:
    case TarMember::Type::kOther: break;
  }
  return Skipped::kSpecial;
}

}  // namespace

std::string_view skipped_name(Skipped reason) {
  switch (reason) {
    case Skipped::kDirectory: return "directories";
    case Skipped::kLink: return "links";
    case Skipped::kSpecial: return "members that are no files";
    case Skipped::kMetadata: return "members called __x__";
    case Skipped::kHidden: return "names that begin with a dot";
    case Skipped::kNoSuffix: return "names without a dot";
    case Skipped::kSample: return "samples that lack something";
  }
  return "unknown";
}

std::optional<SampleName> sample_name(std::string_view name, Skipped& why_not) {
  if (is_metadata(name)) {
    why_not = Skipped::kMetadata;
    return std::nullopt;
  }
  const std::size_t base = name.rfind('/') + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == base || dot == std::string_view::npos) {
    why_not = dot == base ? Skipped::kHidden : Skipped::kNoSuffix;
    return std::nullopt;
  }
  return SampleName{.key = name.substr(0, dot), .suffix = name.substr(dot + 1)};
}

Result<SampleGroups::Added> SampleGroups::add(const TarMember& member) {
  has_done_ = false;
  Skipped why_not{};
  std::optional<SampleName> name;
  if (const auto skipped = skipped_type(member.type)) {
    why_not = *skipped;
  } else {
    name = sample_name(member.name, why_not);
  }
  if (!name) {
    ++skipped_[static_cast<std::size_t>(why_not)];
    return Added::kSkipped;
  }
  const bool first = held_ == 0 || current_.key != name->key;
  if (first) {
    end_sample();
    current_.key = name->key;
    current_.header_offset = member.header_offset;
    keys_.emplace_back(XXH3_64bits(name->key.data(), name->key.size()), member.header_offset);
  }
  SPDLD_TRY(add_to_current(name->suffix, member));
  return first ? Added::kFirst : Added::kMember;
}

void SampleGroups::finish() {
  has_done_ = false;
  end_sample();
}

void SampleGroups::end_sample() {
  if (held_ == 0) return;
  std::swap(current_, done_);
  done_.members.resize(held_);
  has_done_ = true;
  held_ = 0;
  by_suffix_.clear();
}

std::optional<std::uint64_t> SampleGroups::earlier(std::string_view suffix) const {
  if (!by_suffix_.empty()) {
    const auto found = by_suffix_.find(std::string(suffix));
    if (found == by_suffix_.end()) return std::nullopt;
    return found->second;
  }
  for (std::size_t i = 0; i < held_; ++i) {
    if (current_.members[i].suffix == suffix) return current_.members[i].header_offset;
  }
  return std::nullopt;
}

Status SampleGroups::add_to_current(std::string_view suffix, const TarMember& member) {
  if (held_ == kMaxMembers)
    return Status(Code::kResourceExhausted,
                  shard_ + ": at byte " + std::to_string(member.header_offset) + ", sample '" +
                      printable(current_.key) + "' has more than " + std::to_string(kMaxMembers) +
                      " members; a key ends at the first dot of a file's name: rename the files");
  if (held_ == current_.members.size()) current_.members.emplace_back();
  TarSample::Member& added = current_.members[held_];
  added.suffix = lower_case(suffix);
  if (const auto before = earlier(added.suffix))
    return Status(Code::kInvalidArgument,
                  shard_ + ": at byte " + std::to_string(member.header_offset) + ", sample '" +
                      printable(current_.key) + "' has a second part '" + printable(added.suffix) +
                      "', after that at byte " + std::to_string(*before) +
                      "; a sample has one part of each suffix, in whatever case that is written: "
                      "rename or remove one");
  added.header_offset = member.header_offset;
  added.data_offset = member.data_offset;
  added.size = member.size;
  ++held_;
  if (held_ == kFew) {
    for (std::size_t i = 0; i < held_; ++i)
      by_suffix_.emplace(current_.members[i].suffix, current_.members[i].header_offset);
  } else if (held_ > kFew) {
    by_suffix_.emplace(added.suffix, added.header_offset);
  }
  return {};
}

Status SampleGroups::check_unique(FileBytes& file) {
  std::sort(keys_.begin(), keys_.end());
  // Of those that came again, the one that did so first.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> repeated;
  std::string key;
  for (std::size_t i = 1; i < keys_.size(); ++i) {
    if (keys_[i].first != keys_[i - 1].first) continue;
    if (repeated && repeated->second <= keys_[i].second) continue;
    SPDLD_ASSIGN(const std::string name, member_name_at(file, keys_[i - 1].second));
    SPDLD_ASSIGN(const std::string again, member_name_at(file, keys_[i].second));
    Skipped ignored{};
    const auto first = sample_name(name, ignored);
    const auto second = sample_name(again, ignored);
    if (!first || !second || first->key != second->key) continue;  // only the hashes are equal
    repeated = {keys_[i - 1].second, keys_[i].second};
    key = first->key;
  }
  if (!repeated) return {};
  return Status(Code::kInvalidArgument,
                shard_ + ": the key '" + printable(key) + "' at byte " +
                    std::to_string(repeated->first) + " comes again at byte " +
                    std::to_string(repeated->second) +
                    ", with other keys between; the members of a sample lie side by side: rename "
                    "one of the two samples, or, if they are one, pack the shard anew in the order "
                    "of names: " +
                    repack_command(shard_));
}

}  // namespace spdld::source
