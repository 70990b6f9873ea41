// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "source/tar/index_query.h"
#include "source/tar/shard_index.h"

namespace spdld::source {

// The indexes of some shards in one file, so that a shard is read once. All little-endian; strings
// are a u32 of bytes and these:
//
//   "SPDLTAR1"                  the format's name and version
//   string key                  IndexQuery::key()
//   u64 n, n × string           the names of the classes
//   u64 n, n × shard            source/tar/shard_index.cpp writes them
//   u64                         XXH3 of all before

// What such a file holds.
std::string shard_indexes_text(const std::vector<const ShardIndex*>& shards,
                               const IndexQuery& query);

struct KeptShards {
  IndexQuery query;
  std::vector<ShardIndex> shards;
};

// What was kept for a query of `spec`, with the classes of that time. kNotFound: there is none;
// kDataLoss: there is something else, or what was asked for was another thing.
Result<KeptShards> load_shard_indexes(const WebdatasetSpec& spec, const std::string& path);

}  // namespace spdld::source
