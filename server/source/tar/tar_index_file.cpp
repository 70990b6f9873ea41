// SPDX-License-Identifier: Apache-2.0
#include "source/tar/tar_index_file.h"

#include <xxhash.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "source/bytes/binary.h"
#include "source/bytes/whole_file.h"

namespace spdld::source {
namespace {

constexpr std::string_view kMagic = "SPDLTAR2";
// What the index of a shard without samples takes.
constexpr std::size_t kLeastShard = 100;

}  // namespace

std::string shard_indexes_text(const std::vector<const ShardIndex*>& shards,
                               const IndexQuery& query) {
  BinaryWriter out;
  out.raw(kMagic);
  out.string(query.key());
  out.number<std::uint64_t>(query.classes().size());
  for (const std::string& name : query.classes()) out.string(name);
  out.number<std::uint64_t>(shards.size());
  for (const ShardIndex* shard : shards) shard->write(out);
  out.number<std::uint64_t>(XXH3_64bits(out.text().data(), out.text().size()));
  return out.text();
}

Result<KeptShards> load_shard_indexes(const WebdatasetSpec& spec, const std::string& path) {
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
  const std::string key = in.string();
  std::vector<std::string> classes(in.count(sizeof(std::uint32_t)));
  for (std::string& name : classes) name = in.string();
  if (!in.ok()) return refuse("it is damaged");
  Result<IndexQuery> query = IndexQuery::make(spec, std::move(classes));
  if (!query || key != query->key()) return refuse("other things were asked of them");
  std::vector<ShardIndex> shards;
  for (std::size_t n = in.count(kLeastShard); n > 0; --n) {
    std::optional<ShardIndex> shard = ShardIndex::read(in, spec.parts.size());
    if (!shard || shard->values.size() != query->value_fields().size())
      return refuse("it is damaged");
    shards.push_back(std::move(*shard));
  }
  if (!in.ok() || in.left() != 0) return refuse("it is damaged");
  return KeptShards{.query = *std::move(query), .shards = std::move(shards)};
}

}  // namespace spdld::source
