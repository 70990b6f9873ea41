// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/credentials.h"
#include "engine/cache/sample_cache_cost.h"
#include "engine/plan/plan.h"
#include "job/pipeline_id.h"
#include "job/request.h"
#include "source/item/source.h"
#include "source/order/cursor.h"
#include "source/order/lengths.h"
#include "source/order/sampler.h"

namespace spdld::pipeline {

class ListedSources;

// A pipeline that can run: parsed, listed, compiled. Immutable; jobs pin the one that they run.
struct PipelineVersion {
  std::uint32_t version = 0;
  job::PipelineOwner owner = {};
  job::ApplyRequest request;
  std::shared_ptr<const engine::Plan> plan;
  std::shared_ptr<source::Source> source;
  std::string content_digest;
  std::optional<engine::CacheEstimate> cache =
      std::nullopt;         // of its sample cache, if it asks for one
  std::string work_digest;  // of the content but for values that may be tuned while it runs
  std::shared_ptr<ListedSources> listed = nullptr;  // with its variants'
  Credentials reader = {};  // `source` reads with these rights (AccessRules::normalized)
  // Of the source's items, where the shuffle goes by them; else null.
  std::shared_ptr<const source::Lengths> lengths = nullptr;
  std::string lengths_digest;
  std::size_t classes = 0;  // how many
  // The facts of its items are not in memory: `source` is a source::ClosedSource and `lengths`
  // null, and Catalogue::variant() opens them again.
  bool closed = false;

  const std::string& name() const { return plan->spec.name; }  // as its text has it
  std::string id() const { return pipeline_id(owner, name()); }
  std::uint64_t rows() const;  // of an epoch
  source::Order order() const;
  // kResourceExhausted: an order by length finds no room among its user's listings. The sampler of
  // a closed version tells no order.
  Result<source::Sampler> sampler(std::uint64_t seed) const;
  // Its users should know these though nothing failed: a slip in the text, a class without items.
  std::vector<std::string> warnings() const;
  std::uint64_t replace_budget() const;  // of a run: items that others may take the place of
  // The digest of the text that its author wrote, without the dataset.
  std::string text_digest() const;
  // Returns the same without the facts of its items.
  std::shared_ptr<PipelineVersion> closed_copy() const;
};
using PipelinePtr = std::shared_ptr<const PipelineVersion>;

// The text of a request, before anything is listed.
struct PipelineText {
  std::string name;
  std::string digest;                       // PipelineVersion::text_digest()
  std::map<std::string, std::string> vars;  // as they are, given or not
};

}  // namespace spdld::pipeline
