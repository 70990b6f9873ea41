// SPDX-License-Identifier: Apache-2.0
#include "pipeline/pipeline_version.h"

#include <algorithm>
#include <cmath>

#include "pipeline/listed_sources.h"
#include "source/bytes/digest_text.h"
#include "source/closed_source.h"

namespace spdld::pipeline {

std::uint64_t PipelineVersion::rows() const {
  return source->size() * plan->spec.shuffle.repeat.rows;
}

source::Order PipelineVersion::order() const {
  return {.listing_digest = source->listing_digest(),
          .items = source->size(),
          .shuffle = plan->spec.shuffle,
          .lengths_digest = lengths_digest};
}

Result<source::Sampler> PipelineVersion::sampler(std::uint64_t seed) const {
  Shuffle shuffle = plan->spec.shuffle;
  if (closed) shuffle.bucket.reset();
  auto sampler = source::Sampler::counted(source->size(), shuffle, seed, lengths, reader.uid);
  if (!sampler)
    return tl::unexpected<Status>(sampler.error().with_context("pipeline '" + name() + "'"));
  return sampler;
}

std::vector<std::string> PipelineVersion::warnings() const {
  std::vector<std::string> warnings;
  if (listed != nullptr) warnings = listed->warnings();
  for (const std::string& doubt : plan->doubts)
    warnings.push_back("pipeline '" + name() + "': " + doubt);
  return warnings;
}

std::uint64_t PipelineVersion::replace_budget() const {
  const auto& policy = plan->spec.on_error;
  const double share = policy.budget_fraction * static_cast<double>(source->size());
  return std::max(static_cast<std::uint64_t>(policy.budget_min),
                  static_cast<std::uint64_t>(std::llround(share)));
}

std::string PipelineVersion::text_digest() const {
  return source::digest_text(plan->spec.canonical_text);
}

std::shared_ptr<PipelineVersion> PipelineVersion::closed_copy() const {
  auto copy = std::make_shared<PipelineVersion>(*this);
  copy->source = std::make_shared<source::ClosedSource>(*source);
  copy->lengths = nullptr;
  copy->closed = true;
  return copy;
}

}  // namespace spdld::pipeline
