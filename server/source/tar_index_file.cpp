// SPDX-License-Identifier: Apache-2.0
#include "source/tar_index_file.h"

#include <xxhash.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "source/binary.h"
#include "source/whole_file.h"

namespace spdld::source {
namespace {

constexpr std::string_view kMagic = "SPDLTAR1";
// What the index of a shard without samples takes.
constexpr std::size_t kLeastShard = 100;

}  // namespace

Status save_shard_indexes(const std::vector<const ShardIndex*>& shards, const IndexQuery& query,
                          const std::string& path) {
  BinaryWriter out;
  out.raw(kMagic);
  out.string(query.key());
  out.number<std::uint64_t>(shards.size());
  for (const ShardIndex* shard : shards) shard->write(out);
  out.number<std::uint64_t>(XXH3_64bits(out.text().data(), out.text().size()));
  return write_whole_file(path, out.text());
}

Result<std::vector<ShardIndex>> load_shard_indexes(const IndexQuery& query,
                                                   const std::string& path) {
  SPDLD_ASSIGN(const std::string text, read_whole_file(path));
  const auto refuse = [&path](const char* why) {
    return error(Code::kDataLoss, path + " is no index of these shards: " + why);
  };
  if (text.size() < kMagic.size() + sizeof(std::uint64_t) || !text.starts_with(kMagic))
    return refuse("it is of another version");
  const std::size_t end = text.size() - sizeof(std::uint64_t);
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, text.data() + end, sizeof checksum);
  if (checksum != XXH3_64bits(text.data(), end)) return refuse("it is damaged");

  BinaryReader in(std::string_view(text).substr(kMagic.size(), end - kMagic.size()));
  if (in.string() != query.key()) return refuse("other things were asked of them");
  std::vector<ShardIndex> shards;
  for (std::size_t n = in.count(kLeastShard); n > 0; --n) {
    std::optional<ShardIndex> shard = ShardIndex::read(in, query.spec().parts.size());
    if (!shard || shard->values.size() != query.value_fields().size())
      return refuse("it is damaged");
    shards.push_back(std::move(*shard));
  }
  if (!in.ok() || in.left() != 0) return refuse("it is damaged");
  return shards;
}

}  // namespace spdld::source
