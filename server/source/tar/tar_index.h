// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "source/bytes/file_bytes.h"
#include "source/item/columns.h"
#include "source/tar/index_query.h"
#include "source/tar/shard_index.h"

namespace spdld::source {

// The samples of all shards of a dataset, in the order of shards as they are named and of members
// as they lie there. Immutable; any thread. Keys are not held: they are read from the shards.
class TarIndex {
 public:
  // `shards` in their order, each made for `query`; at least one. kInvalidArgument: they hold no
  // sample, or values of one field that have no type in common.
  static Result<TarIndex> make(const IndexQuery& query, std::vector<ShardIndex> shards);

  std::uint64_t size() const { return size_; }
  std::size_t parts() const { return max_bytes_.size(); }
  // Of each part the largest that a sample has.
  const std::vector<std::uint64_t>& max_bytes() const { return max_bytes_; }

  struct Place {
    std::size_t shard = 0;
    std::uint64_t header_offset = 0;  // of the sample's first member
  };
  // Puts the ranges of the item's parts into `parts`, of size parts(). item < size().
  Place find(std::uint64_t item, std::span<TarPart> parts) const;

  // Source::split_hash() of the item: of its shard's base name and its key.
  std::uint64_t split_hash(std::uint64_t item) const;

  // Their values are in values().
  const std::vector<ShardIndex>& shards() const { return shards_; }
  // A shard's path without the directory that all shards have in common.
  std::string_view shard_name(std::size_t shard) const {
    return std::string_view(shards_[shard].path).substr(common_);
  }
  // Labels, and then the values of spec.index: a row for each item.
  const Columns& values() const { return values_; }
  const std::vector<std::string>& classes() const { return classes_; }
  // The directory that all shards lie in.
  std::string directory() const { return shards_[0].path.substr(0, common_ > 1 ? common_ - 1 : 1); }
  // How many members and samples of all shards are no items, for what reasons.
  const SkippedCounts& skipped() const { return skipped_; }
  // Of the keys in order, with the base names of their shards, and N: 32 hex digits.
  const std::string& digest() const { return digest_; }
  // The same with the values, with the sizes and times of the shards, and where samples lie in
  // them.
  const std::string& data_digest() const { return data_digest_; }
  std::uint64_t memory_bytes() const;

 private:
  TarIndex() = default;
  std::size_t shard_of(std::uint64_t item) const;
  Status merge_values(const IndexQuery& query);
  void make_digest();

  std::vector<ShardIndex> shards_;
  std::vector<std::uint64_t> first_;  // item of each shard
  std::uint64_t size_ = 0;
  std::size_t common_ = 0;  // bytes of the directory that all shards lie in, with its slash
  std::vector<std::uint64_t> max_bytes_;
  Columns values_;
  std::vector<std::string> classes_;
  SkippedCounts skipped_{};
  std::string digest_;
  std::string data_digest_;
};

// The key of the sample whose first member's headers are at `header_offset` of `shard`.
Result<std::string> key_at(FileBytes& shard, std::uint64_t header_offset);

// What names an item in messages and records: unique within an index.
std::string tar_uri(std::string_view shard_name, std::string_view key);

}  // namespace spdld::source
