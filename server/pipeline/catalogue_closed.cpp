// SPDX-License-Identifier: Apache-2.0
// Pipelines that nobody uses, whose items are not in memory: a part of Catalogue.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text/counted.h"
#include "pipeline/catalogue.h"
#include "pipeline/listed_sources.h"
#include "source/closed_source.h"
#include "source/kept/kept_datasets.h"

namespace spdld::pipeline {
namespace {

Status others_by_now(const PipelineVersion& pipeline) {
  return {Code::kDataLoss, "pipeline '" + pipeline.name() +
                               "' cannot be opened as it was applied: its items, their values or "
                               "its classes are others by now; apply it again"};
}

}  // namespace

Result<PipelinePtr> Catalogue::with_room(uid_t reader,
                                         const std::function<Result<PipelinePtr>()>& make) {
  Result<PipelinePtr> made = make();
  if (made || made.error().code() != Code::kResourceExhausted) return made;
  if (let_go_) let_go_();
  const auto is_readers = [reader](const PipelineVersion& pipeline) {
    return pipeline.reader.uid == reader;
  };
  if (close(is_readers) == 0) return made;
  if (options_.reaper != nullptr) options_.reaper->wait();
  return make();
}

std::size_t Catalogue::close_unused() {
  std::set<std::string> used;
  {
    MutexLock lock(mutex_);
    used.swap(used_);
    for (const auto& [id, pipeline] : pipelines_) {
      // A job has it, or its source.
      if (pipeline.use_count() > 1 || pipeline->source.use_count() > 1) used_.insert(id);
    }
  }
  return close([&used](const PipelineVersion& pipeline) { return !used.contains(pipeline.id()); });
}

std::size_t Catalogue::close(const std::function<bool(const PipelineVersion&)>& may_close) {
  if (kept_ == nullptr) return 0;
  std::size_t count = 0;
  const std::vector<PipelinePtr> there = all();
  for (const PipelinePtr& pipeline : there) {
    const std::string id = pipeline->id();
    if (pipeline->closed || !may_close(*pipeline) || !kept_->has(pipeline->source->dataset()))
      continue;
    auto closed = std::make_shared<PipelineVersion>(*pipeline);
    closed->source = std::make_shared<source::ClosedSource>(*pipeline->source);
    closed->lengths = nullptr;
    closed->closed = true;
    {
      MutexLock lock(mutex_);
      const auto found = pipelines_.find(id);
      // Nobody else has it: that of `there` is the second reference.
      if (found == pipelines_.end() || found->second != pipeline || pipeline.use_count() > 2 ||
          pipeline->source.use_count() > 1)
        continue;
      found->second = std::move(closed);
    }
    ++count;
    log::info({.pipeline = id}, "pipeline '{}' is closed, as nobody uses it: {}", id,
              counted(pipeline->source->size(), "item"));
  }
  return count;
}

Result<PipelinePtr> Catalogue::opened(const PipelinePtr& pipeline, const Progress& progress) {
  {
    MutexLock lock(mutex_);
    if (pipelines_.contains(pipeline->id())) used_.insert(pipeline->id());
    if (!pipeline->closed) return pipeline;
    // Somebody else may have opened it.
    const auto found = pipelines_.find(pipeline->id());
    if (found != pipelines_.end() && !found->second->closed &&
        found->second->version == pipeline->version)
      return found->second;
  }
  SPDLD_ASSIGN(PipelinePtr open,
               with_room(pipeline->reader.uid, [&] { return open_again(pipeline, progress); }));
  MutexLock lock(mutex_);
  const auto found = pipelines_.find(pipeline->id());
  if (found != pipelines_.end() && found->second == pipeline) found->second = open;
  return open;
}

Result<PipelinePtr> Catalogue::open_again(const PipelinePtr& closed, const Progress& progress) {
  const spec::PipelineSpec& spec = closed->plan->spec;
  auto open = std::make_shared<PipelineVersion>(*closed);
  SPDLD_ASSIGN(open->source, open_source(spec, closed->owner, closed->request.dataset,
                                         *closed->listed, nullptr, closed->reader, progress));
  const auto& was = static_cast<const source::ClosedSource&>(*closed->source);
  if (!was.has_same_items(*open->source)) return tl::unexpected(others_by_now(*closed));
  if (spec.shuffle.bucket) {
    SPDLD_ASSIGN(open->lengths, source::Lengths::read(*open->source, spec.shuffle.bucket->by,
                                                      options_.memory->share(closed->reader.uid)));
    if (open->lengths->digest() != closed->lengths_digest)
      return tl::unexpected(others_by_now(*closed));
  }
  open->closed = false;
  return PipelinePtr(std::move(open));
}

}  // namespace spdld::pipeline
