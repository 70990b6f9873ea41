// SPDX-License-Identifier: Apache-2.0
#include "stream/streams.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace spdld::stream {
namespace {

// A consumer that is no further behind another job catches up with it, and the other waits for as
// long as Stream::held_up() lets it.
constexpr std::uint64_t kMaxCatchUpSteps = 32;
// A stream that moves on while it is being joined.
constexpr int kJoinAttempts = 4;

// From where on two spans are the same: batch `here` of one is batch `there` of the other.
struct Meeting {
  Index here = 0;
  Index there = 0;
};
std::optional<Meeting> meet(const Span& wish, const Span& stream) {
  if (const auto there = stream.index_of(wish)) return Meeting{.here = 0, .there = *there};
  if (const auto here = wish.index_of(stream)) return Meeting{.here = *here, .there = 0};
  return std::nullopt;
}

// Two streams take slots from one pool only where one follows the other and one consumer alone
// reads both: another one could be sent elsewhere and need slots for batches of the first one that
// the second one has already, and of another job nobody could tell that it holds them up.
bool may_reuse(const SlotPool& pool, const StreamWish& wish) {
  if (pool.streams() == 0) return true;
  if (wish.after == nullptr || wish.after->pool().get() != &pool) return false;
  if (wish.replicas > 1 || wish.after->replicas() > 1) return false;
  const std::vector<JobTag> jobs = wish.after->jobs();
  return std::all_of(jobs.begin(), jobs.end(), [&](JobTag job) { return job == wish.job; });
}

// A run's bound of rows at once, where several jobs read them: the highest. A job that gives none
// counts as the plan says; 0: there is none, or none but the plan's.
class SharedBound {
 public:
  void add(int of_job, int of_plan) {
    const int bound = of_job > 0 ? of_job : of_plan;
    is_given_ = is_given_ || of_job > 0;
    is_open_ = is_open_ || bound == 0;
    highest_ = std::max(highest_, bound);
  }
  int value() const { return is_given_ && !is_open_ ? highest_ : 0; }

 private:
  bool is_given_ = false;
  bool is_open_ = false;
  int highest_ = 0;
};

tl::unexpected<Status> needs(const StreamWish& wish, std::uint32_t slots, std::uint64_t bytes,
                             const std::string& place, const Status& why) {
  return tl::unexpected<Status>(
      why.with_context("pipeline '" + wish.span.phase()->run->plan().spec.name + "' needs " +
                       std::to_string(slots) + " slots of " + delivery::format_bytes(bytes) +
                       place + " for shard " + std::to_string(wish.span.shard())));
}

ReaderTerms terms_of(const StreamReader& reader, const StreamWish& wish) {
  return {.holder = reader.holder(),
          .job = wish.job,
          .replica = wish.replica,
          .next = 0,
          .until = wish.until,
          .turn = wish.turn,
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
  const engine::Plan& plan = wish.span.phase()->run->plan();
  const delivery::ArenaShape shape{.kind = kind_,
                                   .slot_bytes = plan.layout.slot_bytes(),
                                   .slot_count = plan.slots_for(wish.credits)};
  std::shared_ptr<SlotPool> pool = wish.reuse;
  if (pool == nullptr || pool->arena().shape() != shape || pool->has_retired() ||
      !may_reuse(*pool, wish)) {
    auto made = SlotPool::create(shape, wish.uid, arenas_, wish.meter, executor_);
    if (!made) return needs(wish, shape.slot_count, shape.slot_bytes, "", made.error());
    pool = std::move(*made);
  }
  std::vector<AwaitedReplica> awaited;
  if (wish.replicas > 1 && wish.absent == AbsentReplica::kWait && wish.presence != nullptr)
    awaited =
        wish.presence->awaited({wish.span.shard(), wish.replica}, wish.replicas, wish.turn,
                               wish.until == kNoIndex ? job::kNoTurn : wish.turn + wish.until);
  return std::make_shared<Stream>(StreamOptions{.span = wish.span,
                                                .maker = wish.job,
                                                .replicas = wish.replicas,
                                                .turn = wish.turn,
                                                .absent = wish.absent,
                                                .awaited = std::move(awaited),
                                                .after = wish.after},
                                  std::move(pool), executor_, clock_);
}

Result<std::shared_ptr<SlotPool>> Streams::slots_on_gpu(const StreamWish& wish,
                                                        const Stream& stream) {
  if (wish.gpu == nullptr || stream.device_layout().device_bytes() == 0) return nullptr;
  const std::uint32_t count = stream.phase()->run->plan().device_slots_for(wish.credits);
  auto slots = stream.pool()->on(wish.gpu, stream.device_layout(), count, wish.reserve);
  if (!slots)
    return needs(wish, count, stream.device_layout().device_bytes(), " on a GPU", slots.error());
  return slots;
}

Result<Leg> Streams::open(const std::shared_ptr<StreamReader>& reader, const StreamWish& wish,
                          std::shared_ptr<Stream> stream) {
  ReaderTerms terms = terms_of(*reader, wish);
  SPDLD_ASSIGN(terms.on_gpu, slots_on_gpu(wish, *stream));
  SPDLD_CHECK(stream->join(reader, terms, 0).has_value());
  if (wish.after != nullptr) wish.after->lead(stream);
  streams_.push_back(stream);
  weigh();
  stream->bind(executor_.open_stream(stream->phase()->run, stream));
  return Leg{.from = 0, .stream = std::move(stream), .first = 0};
}

Result<std::optional<Leg>> Streams::share(const std::shared_ptr<StreamReader>& reader,
                                          const StreamWish& wish, std::shared_ptr<Stream>& own) {
  ReaderTerms terms = terms_of(*reader, wish);
  // Replicas wait for each other; one job waits for another only so long.
  const Index furthest = wish.replicas == 1 ? kMaxCatchUpSteps : kNoIndex;
  for (const std::shared_ptr<Stream>& stream : streams_) {
    if (stream->pool()->uid() != wish.uid || stream->replicas() != wish.replicas) continue;
    // A batch read with one user's rights is not another user's to see.
    if (stream->phase()->reader() != wish.span.phase()->reader()) continue;
    const auto meeting = meet(wish.span, stream->span());
    if (!meeting || meeting->here > furthest || meeting->here >= wish.until) continue;
    terms.next = meeting->there;
    terms.turn = wish.turn + meeting->here - meeting->there;
    terms.until = wish.until == kNoIndex ? kNoIndex : wish.until - meeting->here + meeting->there;
    const Index latest =
        furthest == kNoIndex ? kNoIndex : meeting->there + (furthest - meeting->here);
    terms.on_gpu = nullptr;
    for (int attempt = 0; attempt < kJoinAttempts; ++attempt) {
      const auto offered = stream->offers(terms);
      if (!offered || *offered >= terms.until || *offered > latest) break;
      // The arenas first: a call that fails must have joined nothing. With them the stream may
      // offer another step.
      if (terms.on_gpu == nullptr) {
        SPDLD_ASSIGN(terms.on_gpu, slots_on_gpu(wish, *stream));
        if (terms.on_gpu != nullptr) continue;
      }
      const bool at_once = meeting->here == 0 && *offered == meeting->there;
      if (!at_once && own == nullptr) {
        StreamWish before = wish;
        before.replicas = 1;
        SPDLD_ASSIGN(own, make(before));
      }
      const auto joined = stream->join(reader, terms, at_once ? meeting->there : latest);
      if (!joined) continue;  // it has moved on meanwhile
      weigh();
      return Leg{
          .from = *joined - meeting->there + meeting->here, .stream = stream, .first = *joined};
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
  StreamWish rest = wish;  // the part without a leg
  while (true) {
    SPDLD_ASSIGN(const std::optional<Leg> leg, share(reader, rest, own));
    if (!leg) break;
    legs.insert(legs.begin(), *leg);
    if (leg->from == 0) return {};
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

void Streams::dismiss(JobTag job, job::Member member) {
  MutexLock lock(mutex_);
  for (const auto& stream : streams_) {
    if (stream->replicas() > 1 && stream->span().shard() == member.shard)
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
    SharedBound fetching;
    SharedBound processing;
    for (const JobTag job : jobs) {
      const auto known = limits_.find(job);
      const engine::RunLimits limits = known == limits_.end() ? engine::RunLimits{} : known->second;
      sum.weight += limits.weight;
      sum.workers += limits.workers;
      capped = capped && limits.workers > 0;
      fetching.add(limits.fetching, run->plan_fetching());
      processing.add(limits.processing, run->plan_processing());
    }
    sum.fetching = fetching.value();
    sum.processing = processing.value();
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
