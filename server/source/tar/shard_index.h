// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "source/bytes/binary.h"
#include "source/item/columns.h"
#include "source/item/item_bytes.h"
#include "source/tar/sample_groups.h"

namespace spdld::source {

// A range of a shard that is one part of a sample.
struct TarPart {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  bool present = false;  // else the sample lacks it, and both are 0

  friend bool operator==(const TarPart&, const TarPart&) = default;
};

// Where the samples of one shard and their parts lie. Immutable once built; any thread. A sample of
// three parts takes about 18 bytes, 8 of them a hash of its name: each part is kept as its size and
// its distance from the end of the one before, and only every kBlock-th sample can be gone to
// without those before it.
class ShardIndex {
 public:
  static constexpr std::uint64_t kBlock = 16;

  std::string path;
  ItemStamp stamp;  // of the file when its index was made
  // Whether the stamp tells any later change: else the index is good for this once.
  bool settled = false;
  SkippedCounts skipped{};
  // Of the keys in order: two halves of 128 bits.
  std::array<std::uint64_t, 2> keys_digest{};
  Columns values;
  std::string values_digest;  // of `values`, once an index of all shards has taken these
  // For each column of `values`, a sample that has its type; empty: none has a value.
  std::vector<std::string> value_keys;

  std::uint64_t samples() const { return samples_; }
  // Of each part the largest.
  const std::vector<std::uint64_t>& max_bytes() const { return max_bytes_; }
  // Puts the sample's parts into `parts`, as many as it has, and returns where the headers of its
  // first member begin. `sample` < samples().
  std::uint64_t find(std::uint64_t sample, std::span<TarPart> parts) const;
  // Source::split_hash() of the sample, which keeps the key itself out of memory.
  std::uint64_t split_hash(std::uint64_t sample) const { return split_hashes_[sample]; }
  // Where all samples lie, for digests.
  std::string_view places() const { return blob_; }
  std::uint64_t memory_bytes() const;

  void write(BinaryWriter& out) const;
  // Nothing: the bytes are no index of a shard whose samples have `parts` parts; then `in` may be
  // anywhere.
  static std::optional<ShardIndex> read(BinaryReader& in, std::size_t parts);

 private:
  friend class ShardIndexBuilder;

  bool is_sound();

  std::uint64_t samples_ = 0;
  std::string blob_;                    // samples: source/tar/shard_index.cpp says how
  std::vector<std::uint64_t> offsets_;  // of each block in blob_
  std::vector<std::uint64_t> split_hashes_;
  std::vector<std::uint64_t> max_bytes_;
};

// Takes the samples of a shard in order. One thread.
class ShardIndexBuilder {
 public:
  explicit ShardIndexBuilder(std::size_t parts) { index_.max_bytes_.resize(parts); }

  // Offsets are multiples of kTarBlock, and `header_offset` lies behind all of the sample before.
  void add(std::uint64_t header_offset, std::span<const TarPart> parts, std::uint64_t split_hash);
  std::uint64_t samples() const { return index_.samples_; }
  ShardIndex finish() &&;

 private:
  ShardIndex index_;
  std::uint64_t end_ = 0;  // of the sample before
};

}  // namespace spdld::source
