// SPDX-License-Identifier: Apache-2.0
#include "session/way.h"

#include <algorithm>
#include <utility>

#include "session/gpus.h"

namespace spdld::session {
namespace {

// Each has slots of its own where the version is another one.
constexpr int kMostSpans = 4;

}  // namespace

const Way::Leg& Way::leg_at(job::Turn turn) const {
  const auto later =
      std::find_if(legs_.begin() + 1, legs_.end(), [&](const Leg& leg) { return leg.from > turn; });
  return *(later - 1);
}

const Way::Leg* Way::find(const stream::Stream& stream) const {
  const auto found = std::find_if(legs_.begin(), legs_.end(),
                                  [&](const Leg& leg) { return leg.stream.get() == &stream; });
  return found == legs_.end() ? nullptr : &*found;
}

std::vector<std::shared_ptr<stream::SlotPool>> Way::pools() const {
  std::vector<std::shared_ptr<stream::SlotPool>> pools;
  for (const Leg& leg : legs_) pools.push_back(leg.stream->pool_of(holder_));
  return pools;
}

std::uint32_t Way::ready() const {
  std::uint32_t ready = 0;
  for (const Leg& leg : legs_) {
    const stream::ReadableBatches readable = leg.stream->readable(holder_);
    ready += readable.batches;
    if (!readable.to_its_end) break;
  }
  return ready;
}

std::string Way::reads_on() const {
  if (legs_.empty()) return {};
  const delivery::DeviceMemoryPtr& gpu = front().stream->pool_of(holder_)->gpu();
  return gpu == nullptr ? std::string() : gpu->uuid();
}

void Way::open_epochs(std::uint64_t count) {
  open_epochs_ = count;
  for (const Leg& leg : legs_) leg.stream->open_epochs(holder_, count);
}

std::uint32_t Way::credits_for(const pipeline::Phase& phase) const {
  const auto of_pipeline = static_cast<std::uint32_t>(phase.run->plan().spec.delivery.prefetch);
  return std::clamp(phase.prefetch > 0 ? phase.prefetch : terms_.credits.value_or(of_pipeline),
                    wire::kMinCredits, wire::kMaxCredits);
}

stream::StreamWish Way::wish(stream::Span span, job::Turn from, job::Turn until) const {
  const bool on_gpu = delivers_to_gpus(*span.phase());
  const std::uint32_t credits = credits_for(*span.phase());
  return {.span = std::move(span),
          .until = until == job::kNoTurn ? stream::kNoIndex : until - from,
          .turn = from,
          .replica = terms_.replica,
          .replicas = terms_.replicas,
          .absent = terms_.absent,
          .presence = terms_.presence,
          .job = terms_.job,
          .uid = terms_.uid,
          .credits = credits,
          .open_epochs = open_epochs_,
          .gpu = on_gpu ? gpu_ : nullptr,
          .meter = terms_.meter};
}

Result<std::vector<stream::Leg>> Way::connect(const ReaderPtr& reader, stream::StreamWish& wish,
                                              bool may_wait) {
  auto joined = streams_.connect(reader, wish);
  const pipeline::Phase& phase = *wish.span.phase();
  if (joined || wish.gpu == nullptr || !may_stay_in_main_memory(phase)) return joined;
  if (wish.reserve != nullptr && wish.reserve->lacks()) return joined;  // it is tried again
  if (may_wait && joined.error().code() == Code::kResourceExhausted) return joined;
  const std::string warning = in_main_memory_text(phase, joined.error().message(), true);
  wish.gpu = nullptr;
  joined = streams_.connect(reader, wish);
  if (!joined) return joined;
  gpu_ = nullptr;
  warning_ = warning;
  return joined;
}

Result<Way::Route> Way::route(const ReaderPtr& reader, const JobPlan& plan,
                              const job::OwnSeeks& own, job::Turn from, Joining how) {
  holder_ = reader->holder();
  if (!legs_.empty()) from = std::min(from, until_);  // no turn is left out
  Route route{.from = from, .until = from};
  const auto behind =
      std::find_if(legs_.begin(), legs_.end(), [&](const Leg& leg) { return leg.from >= from; });
  const Leg* before = behind == legs_.begin() ? nullptr : &*std::prev(behind);
  const delivery::DeviceMemoryPtr gpu = gpu_;
  for (int spans = 0; spans < kMostSpans && route.until != job::kNoTurn; ++spans) {
    const job::Turn begin = route.until;
    const job::State state = plan.schedule.locate(begin, own);
    if (terms_.shard >= state.shards) {
      route.until = job::kNoTurn;
      break;
    }
    route.until = plan.schedule.next_change(begin, own);
    const stream::Span span(plan.phase(state.version), state, terms_.shard);
    if (how.extends && before != nullptr && route.legs.empty() &&
        before->stream->span().index_of(span) == before->at(begin)) {
      route.extended = route.until;
      continue;
    }
    stream::StreamWish part = wish(span, begin, route.until);
    if (before != nullptr) {
      part.after = before->stream;
      // The slots on a GPU are filled in the order of one stream.
      if (part.gpu == nullptr && before->stream->phase()->run == span.phase()->run)
        part.reuse = before->stream->pool();
    } else {
      part.reuse = std::exchange(how.reuse, nullptr);
    }
    part.reserve = how.reserve;
    auto joined = connect(reader, part, how.may_wait);
    if (!joined) {
      leave(route);
      gpu_ = gpu;
      return tl::unexpected<Status>(std::move(joined).error());
    }
    for (stream::Leg& leg : *joined)
      route.legs.push_back(
          {.from = begin + leg.from, .stream = std::move(leg.stream), .first = leg.first});
    before = &route.legs.back();
  }
  return route;
}

bool Way::adopt(Route route) {
  cut(route.from);
  if (route.extended &&
      !legs_.back().stream->set_until(holder_, legs_.back().at(*route.extended))) {
    leave(route);
    return false;
  }
  std::move(route.legs.begin(), route.legs.end(), std::back_inserter(legs_));
  until_ = route.until;
  return true;
}

Status Way::adopt(Route route, const ReaderPtr& reader, const JobPlan& plan,
                  const job::OwnSeeks& own, Joining how) {
  const job::Turn from = route.from;
  if (adopt(std::move(route))) return {};
  how.extends = false;
  SPDLD_ASSIGN(route, this->route(reader, plan, own, from, how));
  (void)adopt(std::move(route));
  return {};
}

Status Way::join(const ReaderPtr& reader, const JobPlan& plan, const job::OwnSeeks& own,
                 job::Turn from, const Joining& how) {
  SPDLD_ASSIGN(Route route, this->route(reader, plan, own, from, how));
  return adopt(std::move(route), reader, plan, own, how);
}

Result<bool> Way::leave_gpu(const ReaderPtr& reader, const stream::Stream& refused,
                            const Status& why, const JobPlan& plan, const job::OwnSeeks& own,
                            job::Turn turn) {
  const Leg* const leg = find(refused);
  if (leg == nullptr || !may_stay_in_main_memory(*refused.phase())) return false;
  warning_ = in_main_memory_text(*refused.phase(), why.message(), true);
  gpu_ = nullptr;
  const job::Turn from = leg->from;
  cut(from);
  // The new streams of a held job also wait for go_on().
  const std::uint64_t open = open_epochs_;
  if (holds_) open_epochs(0);
  SPDLD_ASSIGN(Route route,
               this->route(reader, plan, own, std::max(from, turn), {.extends = false}));
  for (const Leg& joined : route.legs) {
    if (!holds_) break;
    (void)joined.stream->hold();
    held_.push_back(joined.stream);
  }
  (void)adopt(std::move(route));
  open_epochs(open);
  return true;
}

void Way::leave(const Route& route) const {
  for (const Leg& leg : route.legs) leg.stream->leave(holder_);
}

void Way::cut(job::Turn from) {
  for (; !legs_.empty() && legs_.back().from >= from; legs_.pop_back())
    legs_.back().stream->leave(holder_);
  if (!legs_.empty() && until_ > from)
    legs_.back().stream->set_until(holder_, legs_.back().at(from));
  until_ = std::min(until_, from);
}

std::shared_ptr<stream::SlotPool> Way::leave_all(bool away, const engine::Run* run) {
  std::shared_ptr<stream::SlotPool> freed;
  for (const Leg& leg : std::exchange(legs_, {})) {
    leg.stream->leave(holder_, away);
    if (leg.stream->ended() && leg.stream->phase()->run.get() == run) freed = leg.stream->pool();
  }
  return freed;
}

bool Way::advance(job::Turn turn) {
  bool left = false;
  while (legs_.size() > 1 && legs_[1].from <= turn) {
    legs_.front().stream->leave(holder_);
    legs_.erase(legs_.begin());
    left = true;
  }
  return left;
}

bool Way::jump(job::Turn turn, const stream::Span& span, job::Turn until) {
  if (legs_.empty()) return false;
  const auto to = legs_.front().stream->span().index_of(span);
  if (!to || !legs_.front().stream->jump(holder_, *to, turn)) return false;
  for (; legs_.size() > 1; legs_.pop_back()) legs_.back().stream->leave(holder_);
  Leg& leg = legs_.front();
  leg.from = turn;
  leg.first = *to;
  until_ = until;
  return leg.stream->set_until(holder_, leg.at(until));
}

Result<bool> Way::part(const ReaderPtr& reader, job::Turn turn) {
  const Leg& leg = legs_.front();
  const job::Turn until = legs_.size() > 1 ? legs_[1].from : until_;
  if (turn >= until) return false;
  const stream::Span& shared = leg.stream->span();
  stream::StreamWish own =
      wish(stream::Span(shared.phase(), shared.at(leg.at(turn)), terms_.shard), turn, until);
  own.replicas = 1;
  SPDLD_ASSIGN(std::vector<stream::Leg> legs, streams_.connect(reader, own));
  leg.stream->leave(holder_);
  legs_.erase(legs_.begin());
  for (auto joined = legs.rbegin(); joined != legs.rend(); ++joined)
    legs_.insert(
        legs_.begin(),
        {.from = turn + joined->from, .stream = std::move(joined->stream), .first = joined->first});
  return true;
}

void Way::dismiss() const {
  if (terms_.replicas > 1) streams_.dismiss(terms_.job, {terms_.shard, terms_.replica});
}

job::Turn Way::hold(job::Turn turn, job::Turn limit) {
  holds_ = true;
  job::Turn frontier = turn;
  for (std::size_t i = 0; i < legs_.size(); ++i) {
    const Leg& leg = legs_[i];
    held_.push_back(leg.stream);
    const stream::Index begun = leg.stream->hold();
    if (begun <= leg.first || leg.from >= limit) continue;
    const job::Turn end = i + 1 < legs_.size() ? legs_[i + 1].from : until_;
    frontier = std::max(frontier, std::min({leg.from + (begun - leg.first), end, limit}));
  }
  return frontier;
}

std::vector<std::shared_ptr<stream::Stream>> Way::take_held() {
  holds_ = false;
  return std::exchange(held_, {});
}

}  // namespace spdld::session
