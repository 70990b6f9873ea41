// SPDX-License-Identifier: Apache-2.0
#include "source/tar/indexed_shards.h"

#include <cstdint>
#include <limits>

#include "source/tar/index_query.h"
#include "source/tar/shard_scan.h"

namespace spdld::source {

Status IndexedShards::compare(std::uint64_t number, FileBytes& file) const {
  const ShardIndex& indexed = index_->shards()[number];
  SPDLD_ASSIGN(const IndexQuery query, IndexQuery::make(spec_, index_->classes()));
  ScanMeter meter;
  const Result<ShardIndex> now = scan_shard(
      file, query,
      {.meter = &meter, .max_samples = std::numeric_limits<std::uint64_t>::max(), .stopped = {}});
  if (!now) return {Code::kDataLoss, "it holds something else by now: " + now.error().message()};
  if (now->samples() != indexed.samples() || now->keys_digest != indexed.keys_digest)
    return {Code::kDataLoss, "it holds other samples by now, or in another order"};
  if (now->places() != indexed.places())
    return {Code::kDataLoss, "its samples lie elsewhere in it by now"};
  if (now->values.digest() != indexed.values_digest)
    return {Code::kDataLoss, "its samples have other labels or indexed values by now"};
  return {};
}

}  // namespace spdld::source
