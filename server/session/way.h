// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "session/job_plan.h"
#include "stream/streams.h"

namespace spdld::session {

// The facts about a consumer that its streams need.
struct WayTerms {
  std::uint32_t shard = 0;
  std::uint32_t replica = 0;
  std::uint32_t replicas = 1;
  stream::AbsentReplica absent = stream::AbsentReplica::kWait;
  bool follows = false;  // begins where the other replicas are, if they are beyond its turn
  bool gpu_may_have_room = false;  // soon: as it connects, a full one is no reason to do without
  std::optional<std::uint32_t> credits = std::nullopt;  // that it asks for
  uid_t uid = 0;
  stream::JobTag job = 0;
  std::shared_ptr<stream::ByteMeter> meter;
  std::shared_ptr<stream::ReplicaPresence> presence;
};

// The streams that a consumer reads, by turns, and the GPU on which it reads them. A value without
// a lock of its own, under that of its consumer.
class Way {
 public:
  using ReaderPtr = std::shared_ptr<stream::StreamReader>;
  struct Leg {
    job::Turn from = 0;
    std::shared_ptr<stream::Stream> stream;
    stream::Index first = 0;  // the batch there that is sent at `from`

    stream::Index at(job::Turn turn) const {
      return turn == job::kNoTurn ? stream::kNoIndex : first + (turn - from);
    }
  };
  // Legs that have been joined; adopt() adds them at the end of the way.
  struct Route {
    job::Turn from = 0;
    // The leg before goes on up to here, and `legs` follow.
    std::optional<job::Turn> extended = std::nullopt;
    std::vector<Leg> legs = {};
    job::Turn until = 0;  // kNoTurn: to the last batch that the consumer ever reads
  };

  // `terms` outlive it.
  Way(const WayTerms& terms, stream::Streams& streams) : terms_(terms), streams_(streams) {}

  const std::vector<Leg>& legs() const { return legs_; }
  bool empty() const { return legs_.empty(); }
  const Leg& front() const { return legs_.front(); }
  // The leg on which it reads that turn, or the last one before.
  const Leg& leg_at(job::Turn turn) const;
  // The turn from which a further leg is to be joined now, if one is.
  std::optional<job::Turn> lacks_from() const {
    if (until_ == job::kNoTurn || legs_.size() > 1) return std::nullopt;
    return until_;
  }
  // The leg on which it reads the stream; null: it does not.
  const Leg* find(const stream::Stream& stream) const;
  // Batches that it may hold or have waiting on the first leg.
  std::uint32_t credits() const { return credits_for(*front().stream->phase()); }
  // Those of its legs, in their order.
  std::vector<std::shared_ptr<stream::SlotPool>> pools() const;
  std::uint32_t ready() const;  // finished batches from the first leg on
  // UUID of the GPU that its next batches lie on; empty: in main memory.
  std::string reads_on() const;

  // The GPU on which the consumer reads batches delivered to GPUs; null: all are read in main
  // memory.
  void read_on(delivery::DeviceMemoryPtr gpu) { gpu_ = std::move(gpu); }
  const delivery::DeviceMemoryPtr& gpu() const { return gpu_; }
  // Why it reads in main memory since the last call; empty: nothing has changed.
  std::string take_warning() { return std::exchange(warning_, {}); }
  void open_epochs(std::uint64_t count);

  // Joins the streams that the plan has for the consumer from a turn on, beside those it reads. On
  // failure nothing is joined. With a reserve, memory on the GPU comes from the reserve, and a
  // shortage there is refused. `may_wait`: a full GPU is refused also where main memory would do.
  struct Joining {
    stream::DeviceReserve* reserve = nullptr;
    bool may_wait = false;
    bool extends = true;  // the leg before may go on
    std::shared_ptr<stream::SlotPool> reuse = nullptr;
  };
  Result<Route> route(const ReaderPtr& reader, const JobPlan& plan, const job::OwnSeeks& own,
                      job::Turn from, Joining how);
  // The route, which was made by these arguments, replaces the legs from its first turn on.
  Status adopt(Route route, const ReaderPtr& reader, const JobPlan& plan, const job::OwnSeeks& own,
               Joining how);
  // Makes the route and adopts it.
  Status join(const ReaderPtr& reader, const JobPlan& plan, const job::OwnSeeks& own,
              job::Turn from, const Joining& how);
  // Reads in main memory from the leg of a stream on that has refused memory on the GPU. False: it
  // has no such leg, or its batches may not lie there.
  Result<bool> leave_gpu(const ReaderPtr& reader, const stream::Stream& refused, const Status& why,
                         const JobPlan& plan, const job::OwnSeeks& own, job::Turn turn);
  // Nothing is read from `from` on.
  void cut(job::Turn from);
  // The slots of a stream of this run that ended by that.
  std::shared_ptr<stream::SlotPool> leave_all(bool away = false, const engine::Run* run = nullptr);
  // It is about to be sent `turn`: legs that end before are left. Whether any were.
  bool advance(job::Turn turn);
  // It reads `span` at the turns [turn, until), in the stream that it reads already. False: that
  // does not come there, and the way is to be joined anew.
  bool jump(job::Turn turn, const stream::Span& span, job::Turn until);
  // Reads the first leg from `turn` on in a stream of its own. False: it is through with it.
  Result<bool> part(const ReaderPtr& reader, job::Turn turn);
  // No stream but those that it reads waits for this replica any more.
  void dismiss() const;

  // The first turn from `turn` on that no batch has been begun of. From `limit` on they do not
  // count: those of a planned swap may be made long before. Nothing further is begun until
  // take_held().
  job::Turn hold(job::Turn turn, job::Turn limit);
  bool holds() const { return holds_; }
  // The streams to let go on, without the consumer's lock.
  std::vector<std::shared_ptr<stream::Stream>> take_held();

 private:
  // False: the leg before the route cannot go on, as its batches are gone.
  bool adopt(Route route);
  void leave(const Route& route) const;
  Result<std::vector<stream::Leg>> connect(const ReaderPtr& reader, stream::StreamWish& wish,
                                           bool may_wait);
  std::uint32_t credits_for(const pipeline::Phase& phase) const;
  stream::StreamWish wish(stream::Span span, job::Turn from, job::Turn until) const;

  const WayTerms& terms_;
  stream::Streams& streams_;
  delivery::DeviceMemoryPtr gpu_;
  std::string warning_;
  std::uint64_t open_epochs_ = 0;
  delivery::HolderId holder_ = 0;
  std::vector<Leg> legs_;
  job::Turn until_ = 0;
  bool holds_ = false;
  std::vector<std::shared_ptr<stream::Stream>> held_;
};

}  // namespace spdld::session
