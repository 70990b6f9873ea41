// SPDX-License-Identifier: Apache-2.0
// Pipelines that nobody uses, whose items are not in memory: a part of Catalogue.
#include <chrono>
#include <cstdint>
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

// A daemon that starts waits for no storage that is silent for so long.
constexpr std::chrono::seconds kStorageAnswers{10};

// Gives up a listing that does not come on.
ListingProgress while_it_answers() {
  struct Seen {
    std::uint64_t items = 0;
    std::string what;
    std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
  };
  return [seen = std::make_shared<Seen>()](std::uint64_t items, const std::string& what) {
    const auto now = std::chrono::steady_clock::now();
    if (items != seen->items || what != seen->what) *seen = {items, what, now};
    return now - seen->at < kStorageAnswers;
  };
}

Status others_by_now(const PipelineVersion& pipeline) {
  return {Code::kDataLoss, "pipeline '" + pipeline.name() +
                               "' cannot be opened as it was applied: its items, their values or "
                               "its classes are others by now; apply it again"};
}

PipelinePtr closed_of(const PipelineVersion& pipeline) {
  auto closed = std::make_shared<PipelineVersion>(pipeline);
  closed->source = std::make_shared<source::ClosedSource>(*pipeline.source);
  closed->lengths = nullptr;
  closed->closed = true;
  return closed;
}

}  // namespace

Result<PipelinePtr> Catalogue::with_room(uid_t reader,
                                         const std::function<Result<PipelinePtr>()>& make) {
  Result<PipelinePtr> made = make();
  if (made || made.error().code() != Code::kResourceExhausted) return made;
  {
    MutexLock lock(let_go_mutex_);
    if (let_go_) let_go_();
  }
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
    PipelinePtr closed = closed_of(*pipeline);
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

PipelinePtr Catalogue::open_already(const PipelinePtr& pipeline) {
  MutexLock lock(mutex_);
  const auto found = pipelines_.find(pipeline->id());
  if (found != pipelines_.end()) used_.insert(pipeline->id());
  if (!pipeline->closed) return pipeline;
  const bool is_open = found != pipelines_.end() && !found->second->closed &&
                       found->second->version == pipeline->version &&
                       found->second->content_digest == pipeline->content_digest;
  return is_open ? found->second : nullptr;
}

Asked<PipelinePtr> Catalogue::opened(const PipelinePtr& pipeline, const ListingAsker& asker) {
  if (PipelinePtr open = open_already(pipeline)) return std::optional(std::move(open));
  return ask<PipelinePtr>(
      pipeline->reader.uid,
      "open " + pipeline->id() + " " + std::to_string(pipeline->version) + " " +
          pipeline->content_digest,
      [this, pipeline](const Progress& progress) { return open_now(pipeline, progress); }, asker);
}

Result<PipelinePtr> Catalogue::open_now(const PipelinePtr& pipeline, const Progress& progress) {
  if (PipelinePtr open = open_already(pipeline)) return open;
  SPDLD_ASSIGN(PipelinePtr open,
               with_room(pipeline->reader.uid, [&] { return open_again(pipeline, progress); }));
  MutexLock lock(mutex_);
  const auto found = pipelines_.find(pipeline->id());
  if (found != pipelines_.end() && found->second == pipeline) found->second = open;
  return open;
}

Result<PipelinePtr> Catalogue::recall(const job::PipelineOwner& owner,
                                      const job::ApplyRequest& request, const Recorded& as) {
  const auto answered = [](Status why) -> Result<PipelinePtr> {
    if (why.code() == Code::kCancelled) why = {Code::kUnavailable, "its storage does not answer"};
    return tl::unexpected<Status>(std::move(why));
  };
  if (const auto text = text_of(owner.uid, request, while_it_answers()); !text)
    return answered(text.error());
  if (auto recalled = recall_closed(owner, request, as)) return recalled;
  auto open = rebuild(owner, request, as.version, as.batch_size, as.reader, while_it_answers());
  return open ? open : answered(open.error());
}

Result<PipelinePtr> Catalogue::recall_closed(const job::PipelineOwner& owner,
                                             const job::ApplyRequest& request, const Recorded& as) {
  if (kept_ == nullptr || request.dataset.empty()) return error(Code::kNotFound, "nothing is kept");
  const Credentials reader =
      as.reader.value_or(request.reader.value_or(Credentials::of_user(owner.uid)));
  const auto made = with_room(reader.uid, [&]() -> Result<PipelinePtr> {
    SPDLD_ASSIGN(spec::PipelineSpec spec, parse(owner.uid, request));
    if (as.batch_size) spec.batch.size = static_cast<std::int64_t>(*as.batch_size);
    auto listed = std::make_shared<ListedSources>();
    SPDLD_ASSIGN(
        std::shared_ptr<source::Source> source,
        open_source(spec, owner, request.dataset, *listed, nullptr, reader, nullptr, true));
    return assemble(owner, request, std::move(spec), std::move(source), std::move(listed), reader,
                    nullptr, false);
  });
  if (!made) return made;
  auto closed = std::make_shared<PipelineVersion>(*closed_of(**made));
  closed->version = as.version;
  return PipelinePtr(std::move(closed));
}

Result<PipelinePtr> Catalogue::open_again(const PipelinePtr& closed, const Progress& progress) {
  const spec::PipelineSpec& spec = closed->plan->spec;
  auto open = std::make_shared<PipelineVersion>(*closed);
  SPDLD_ASSIGN(auto source, open_source(spec, closed->owner, closed->request.dataset,
                                        *closed->listed, nullptr, closed->reader, progress));
  open->source = shared(std::move(source));
  const auto& was = static_cast<const source::ClosedSource&>(*closed->source);
  if (!was.has_same_items(*open->source)) return tl::unexpected(others_by_now(*closed));
  if (spec.shuffle.bucket) {
    SPDLD_ASSIGN(open->lengths, source::Lengths::read(*open->source, spec.shuffle.bucket->by,
                                                      options_.memory->share(closed->reader.uid)));
    if (open->lengths->digest() != closed->lengths_digest)
      return tl::unexpected(others_by_now(*closed));
  }
  if (spec.cache && !open->cache) open->cache = caches_.estimate(*open->plan, *open->source);
  open->closed = false;
  return PipelinePtr(std::move(open));
}

}  // namespace spdld::pipeline
