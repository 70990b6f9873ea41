// SPDX-License-Identifier: Apache-2.0
#include "source/tar/tar_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "source/bytes/binary.h"
#include "source/bytes/digest_text.h"
#include "source/item/value_column.h"
#include "source/tar/tar_reader.h"

namespace spdld::source {
namespace {

// Bytes of the directory that all of them lie in, with the slash behind it.
std::size_t common_directory(const std::vector<ShardIndex>& shards) {
  std::string_view common = shards[0].path;
  for (const ShardIndex& shard : shards) {
    const auto end =
        std::mismatch(common.begin(), common.end(), shard.path.begin(), shard.path.end());
    common = common.substr(0, static_cast<std::size_t>(end.first - common.begin()));
  }
  return common.rfind('/') + 1;
}

// Why an index has no item.
Status no_samples(const IndexQuery& query, const std::vector<ShardIndex>& shards,
                  const SkippedCounts& skipped) {
  std::string why = "the " + std::to_string(shards.size()) + " shards, " + shards[0].path +
                    " first, hold no sample";
  std::string left_out;
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    if (skipped[i] == 0) continue;
    left_out += (left_out.empty() ? "; left out were " : ", ") + std::to_string(skipped[i]) + " " +
                std::string(skipped_name(static_cast<Skipped>(i)));
  }
  why += left_out;
  if (skipped[static_cast<std::size_t>(Skipped::kSample)] > 0 &&
      query.spec().missing == WebdatasetSpec::Missing::kSkip)
    why += "; set 'source.webdataset.missing: error' to be told what the first one lacks";
  return Status(Code::kInvalidArgument, why);
}

}  // namespace

Result<TarIndex> TarIndex::make(const IndexQuery& query, std::vector<ShardIndex> shards) {
  SPDLD_CHECK(!shards.empty());
  TarIndex index;
  index.shards_ = std::move(shards);
  index.common_ = common_directory(index.shards_);
  index.classes_ = query.classes();
  index.max_bytes_.resize(query.spec().parts.size());
  for (const ShardIndex& shard : index.shards_) {
    index.first_.push_back(index.size_);
    index.size_ += shard.samples();
    for (std::size_t i = 0; i < index.max_bytes_.size(); ++i)
      index.max_bytes_[i] = std::max(index.max_bytes_[i], shard.max_bytes()[i]);
    for (std::size_t i = 0; i < index.skipped_.size(); ++i) index.skipped_[i] += shard.skipped[i];
  }
  if (index.size_ == 0) return tl::unexpected(no_samples(query, index.shards_, index.skipped_));
  SPDLD_TRY(index.merge_values(query));
  index.make_digest();
  return index;
}

Status TarIndex::merge_values(const IndexQuery& query) {
  std::vector<Columns::Info> infos;
  for (std::size_t column = 0; column < query.value_fields().size(); ++column) {
    const std::string& field = query.value_fields()[column];
    // The type so far, and the shard that made it what it is.
    const ShardIndex* from = nullptr;
    ValueType type = ValueType::kInt64;
    for (const ShardIndex& shard : shards_) {
      if (shard.samples() == 0 || shard.value_keys[column].empty()) continue;
      const ValueType given = shard.values.info(column).type;
      const auto common = from == nullptr ? given : common_type(type, given);
      if (!common)
        return mixed_types(field, type, sample_place(from->path, from->value_keys[column]), given,
                           sample_place(shard.path, shard.value_keys[column]));
      if (from == nullptr || *common != type) from = &shard;
      type = *common;
    }
    infos.push_back({.name = field, .type = type, .max_bytes = 0});
  }
  ColumnsBuilder builder(infos);
  std::vector<double> numbers;
  for (ShardIndex& shard : shards_) {
    for (std::size_t column = 0; column < infos.size(); ++column) {
      const bool has_values = shard.samples() > 0 && !shard.value_keys[column].empty();
      for (std::uint64_t row = 0; row < shard.samples(); ++row)
        builder.add(column, has_values ? converted(shard.values.value(row, column),
                                                   infos[column].type, numbers)
                                       : no_value(infos[column].type));
    }
    shard.values_digest = shard.values.digest();
    shard.values = {};
    shard.value_keys = {};
  }
  values_ = std::move(builder).finish();
  return {};
}

// Saved in users' cursors: never change what goes in.
void TarIndex::make_digest() {
  BinaryWriter out;
  for (const ShardIndex& shard : shards_) {
    // It adds nothing to the sequence.
    if (shard.samples() == 0) continue;
    out.string(std::string_view(shard.path).substr(shard.path.rfind('/') + 1));
    for (const std::uint64_t half : shard.keys_digest) out.number(half);
    out.number(shard.samples());
  }
  out.number(size_);
  digest_ = digest_text(out.text());

  BinaryWriter data;
  data.string(digest_);
  data.string(values_.digest());
  for (const ShardIndex& shard : shards_) {
    data.number(shard.stamp.size_bytes);
    data.number(shard.stamp.mtime_ns);
    data.string(digest_text(shard.places()));
  }
  data_digest_ = digest_text(data.text());
}

std::size_t TarIndex::shard_of(std::uint64_t item) const {
  SPDLD_CHECK(item < size_);
  // The last one that begins at or before the item: those without samples come before it.
  const auto behind = std::upper_bound(first_.begin(), first_.end(), item);
  return static_cast<std::size_t>(behind - first_.begin() - 1);
}

TarIndex::Place TarIndex::find(std::uint64_t item, std::span<TarPart> parts) const {
  const std::size_t shard = shard_of(item);
  return {.shard = shard, .header_offset = shards_[shard].find(item - first_[shard], parts)};
}

std::uint64_t TarIndex::split_hash(std::uint64_t item) const {
  const std::size_t shard = shard_of(item);
  return shards_[shard].split_hash(item - first_[shard]);
}

std::uint64_t TarIndex::memory_bytes() const {
  std::uint64_t bytes = sizeof *this + values_.memory_bytes() +
                        (first_.capacity() + max_bytes_.capacity()) * sizeof first_[0];
  for (const ShardIndex& shard : shards_) bytes += shard.memory_bytes();
  for (const std::string& name : classes_) bytes += sizeof(std::string) + name.capacity();
  return bytes;
}

Result<std::string> key_at(FileBytes& shard, std::uint64_t header_offset) {
  SPDLD_ASSIGN(const std::string name, member_name_at(shard, header_offset));
  Skipped why_not{};
  const auto cut = sample_name(name, why_not);
  if (!cut)
    return error(Code::kDataLoss, shard.path() + ": at byte " + std::to_string(header_offset) +
                                      " begins no sample any more; it has changed");
  return std::string(cut->key);
}

std::string tar_uri(std::string_view shard_name, std::string_view key) {
  return std::string(shard_name) + "/" + std::string(key);
}

}  // namespace spdld::source
