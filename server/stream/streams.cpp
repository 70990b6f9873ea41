// SPDX-License-Identifier: Apache-2.0
#include "stream/streams.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace spdld::stream {
namespace {

// Who is no further behind another job catches up with it, and the other waits for as long as
// Stream::held_up() lets it.
constexpr std::uint64_t kMaxCatchUpSteps = 32;
// A stream that moves on while it is being joined.
constexpr int kJoinAttempts = 4;

ReaderTerms terms_of(const StreamReader& reader, const StreamWish& wish) {
  return {.holder = reader.holder(),
          .job = wish.job,
          .replica = wish.replica,
          .from = wish.from,
          .until = wish.until,
          .open_epochs = wish.open_epochs};
}

}  // namespace

std::vector<std::shared_ptr<Stream>> Streams::take_ended() {
  const auto first = std::stable_partition(streams_.begin(), streams_.end(),
                                           [](const auto& stream) { return !stream->ended(); });
  std::vector<std::shared_ptr<Stream>> ended(std::make_move_iterator(first),
                                             std::make_move_iterator(streams_.end()));
  streams_.erase(first, streams_.end());
  return ended;
}

Result<std::shared_ptr<Stream>> Streams::make(const StreamWish& wish) {
  const pipeline::PhasePtr& phase = wish.timeline.phase(wish.from);
  const engine::Plan& plan = phase->run->plan();
  const delivery::ArenaShape shape{.kind = kind_,
                                   .slot_bytes = plan.layout.slot_bytes(),
                                   .slot_count = plan.slots_for(wish.credits)};
  std::shared_ptr<SlotPool> pool = wish.reuse;
  if (pool == nullptr || pool->arena().shape() != shape || pool->has_retired()) {
    auto made = SlotPool::create(shape, wish.uid, arenas_, wish.meter, executor_);
    if (!made)
      return tl::unexpected<Status>(made.error().with_context(
          "pipeline '" + plan.spec.name + "' needs " + std::to_string(shape.slot_count) +
          " slots of " + delivery::format_bytes(shape.slot_bytes) + " for shard " +
          std::to_string(wish.shard)));
    pool = std::move(*made);
  }
  std::vector<AwaitedReplica> awaited;
  if (wish.replicas > 1 && wish.absent == AbsentReplica::kWait && wish.roll != nullptr)
    awaited = wish.roll->awaited({wish.shard, wish.replica}, wish.replicas, wish.passage, wish.from,
                                 wish.until);
  return std::make_shared<Stream>(StreamOptions{.timeline = wish.timeline,
                                                .shard = wish.shard,
                                                .from = wish.from,
                                                .maker = wish.job,
                                                .replicas = wish.replicas,
                                                .passage = wish.passage,
                                                .absent = wish.absent,
                                                .awaited = std::move(awaited),
                                                .after = wish.after},
                                  std::move(pool), executor_, clock_);
}

Result<std::shared_ptr<SlotPool>> Streams::slots_on_gpu(const StreamWish& wish,
                                                        const Stream& stream) {
  if (wish.gpu == nullptr || stream.device_layout().device_bytes() == 0) return nullptr;
  const engine::Plan& plan = stream.phase()->run->plan();
  auto slots = stream.pool()->on(wish.gpu, stream.device_layout(),
                                 plan.device_slots_for(wish.credits), wish.reserve);
  if (!slots)
    return tl::unexpected<Status>(slots.error().with_context(
        "pipeline '" + plan.spec.name + "' needs " +
        std::to_string(plan.device_slots_for(wish.credits)) + " slots of " +
        delivery::format_bytes(stream.device_layout().device_bytes()) + " on a GPU for shard " +
        std::to_string(wish.shard)));
  return slots;
}

Result<Leg> Streams::open(const std::shared_ptr<StreamReader>& reader, const StreamWish& wish,
                          std::shared_ptr<Stream> stream) {
  ReaderTerms terms = terms_of(*reader, wish);
  SPDLD_ASSIGN(terms.on_gpu, slots_on_gpu(wish, *stream));
  SPDLD_CHECK(stream->join(reader, terms, wish.from).has_value());
  if (wish.after != nullptr) wish.after->lead(stream);
  streams_.push_back(stream);
  weigh();
  stream->bind(executor_.open_stream(stream->phase()->run, stream));
  return Leg{wish.from, std::move(stream)};
}

Result<std::optional<Leg>> Streams::share(const std::shared_ptr<StreamReader>& reader,
                                          const StreamWish& wish, std::shared_ptr<Stream>& own) {
  ReaderTerms terms = terms_of(*reader, wish);
  // Replicas wait for each other; one job waits for another only so long.
  job::StepAt furthest = job::kNever;
  if (wish.replicas == 1) furthest = {wish.from.epoch, wish.from.step + kMaxCatchUpSteps};
  for (const std::shared_ptr<Stream>& stream : streams_) {
    if (stream->shard() != wish.shard || stream->uid() != wish.uid ||
        stream->replicas() != wish.replicas)
      continue;
    if (wish.replicas > 1 && stream->passage() != wish.passage) continue;
    terms.on_gpu = nullptr;
    for (int attempt = 0; attempt < kJoinAttempts; ++attempt) {
      const auto offered = stream->offers(terms);
      if (!offered || *offered >= wish.until || *offered > furthest) break;
      // What one reader may have, another may not; and what follows in the timeline may be another
      // stream's.
      if (stream->phase()->reader() != wish.timeline.phase(*offered)->reader()) break;
      if (!stream->phase()->same_content(*wish.timeline.phase(*offered)) ||
          !stream->timeline().same_from(*offered, wish.timeline))
        break;
      // The arenas first: what fails must have joined nothing. What it reads there decides about
      // the step from which on it can.
      if (terms.on_gpu == nullptr) {
        SPDLD_ASSIGN(terms.on_gpu, slots_on_gpu(wish, *stream));
        if (terms.on_gpu != nullptr) continue;
      }
      const bool at_once = *offered == wish.from;
      if (!at_once && own == nullptr) {
        StreamWish before = wish;
        before.replicas = 1;
        SPDLD_ASSIGN(own, make(before));
      }
      const auto joined = stream->join(reader, terms, at_once ? wish.from : furthest);
      if (!joined) continue;  // it has moved on meanwhile
      weigh();
      return Leg{*joined, stream};
    }
  }
  return std::nullopt;
}

Result<std::vector<Leg>> Streams::connect(const std::shared_ptr<StreamReader>& reader,
                                          const StreamWish& wish) {
  std::vector<std::shared_ptr<Stream>> ended;
  MutexLock lock(mutex_);
  ended = take_ended();
  std::vector<Leg> legs;
  if (Status status = connect(reader, wish, legs); !status.ok()) {
    for (const Leg& leg : legs) leg.stream->leave(reader->holder());
    return tl::unexpected<Status>(std::move(status));
  }
  return legs;
}

Status Streams::connect(const std::shared_ptr<StreamReader>& reader, const StreamWish& wish,
                        std::vector<Leg>& legs) {
  std::shared_ptr<Stream> own;
  StreamWish rest = wish;  // what has no leg yet
  while (true) {
    SPDLD_ASSIGN(const std::optional<Leg> leg, share(reader, rest, own));
    if (!leg) break;
    legs.insert(legs.begin(), *leg);
    if (leg->from == wish.from) return {};
    rest.until = leg->from;
    rest.replicas = 1;
  }
  if (own == nullptr) {
    SPDLD_ASSIGN(own, make(rest));
  }
  SPDLD_ASSIGN(Leg first, open(reader, rest, std::move(own)));
  legs.insert(legs.begin(), std::move(first));
  return {};
}

void Streams::dismiss(JobTag job, job::Member member, std::uint32_t passage) {
  MutexLock lock(mutex_);
  for (const auto& stream : streams_) {
    if (stream->replicas() > 1 && stream->shard() == member.shard && stream->passage() <= passage)
      stream->dismiss(job, member.replica);
  }
}

void Streams::set_limits(JobTag job, engine::RunLimits limits) {
  MutexLock lock(mutex_);
  limits_[job] = limits;
  weigh();
}

void Streams::forget(JobTag job) {
  MutexLock lock(mutex_);
  limits_.erase(job);
}

void Streams::weigh() {
  std::map<engine::Run*, std::vector<JobTag>> served;
  for (const auto& stream : streams_) {
    std::vector<JobTag>& jobs = served[stream->phase()->run.get()];
    for (const JobTag job : stream->jobs()) {
      if (std::find(jobs.begin(), jobs.end(), job) == jobs.end()) jobs.push_back(job);
    }
  }
  for (const auto& [run, jobs] : served) {
    engine::RunLimits sum{.weight = 0, .workers = 0};
    bool capped = true;
    for (const JobTag job : jobs) {
      const auto known = limits_.find(job);
      const engine::RunLimits limits = known == limits_.end() ? engine::RunLimits{} : known->second;
      sum.weight += limits.weight;
      sum.workers += limits.workers;
      capped = capped && limits.workers > 0;
    }
    if (!capped) sum.workers = 0;
    if (!jobs.empty()) executor_.set_limits(*run, sum);
  }
}

void Streams::drop_ended() {
  std::vector<std::shared_ptr<Stream>> ended;
  MutexLock lock(mutex_);
  ended = take_ended();
}

void Streams::tick() {
  std::vector<std::shared_ptr<StreamReader>> held_up;
  std::vector<std::shared_ptr<Stream>> ended;
  {
    MutexLock lock(mutex_);
    ended = take_ended();
    weigh();
    for (const auto& stream : streams_) {
      for (auto& reader : stream->held_up()) held_up.push_back(std::move(reader));
    }
  }
  for (const auto& reader : held_up) reader->displaced();
}

}  // namespace spdld::stream
