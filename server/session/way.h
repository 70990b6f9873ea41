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
  std::uint32_t credits = 0;
  uid_t uid = 0;
  stream::JobTag job = 0;
  std::shared_ptr<stream::ByteMeter> meter;
  std::shared_ptr<stream::ReplicaPresence> presence;
};

// The streams that a consumer reads, by turns. Owned by the consumer and guarded by its lock.
class Way {
 public:
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
  // Up to here it has legs; kNoTurn: there is nothing more to join.
  job::Turn until() const { return until_; }
  // The leg on which it reads the stream; null: it does not.
  const Leg* find(const stream::Stream& stream) const;

  // The GPU on which the consumer reads batches delivered to GPUs; null: all are read in main
  // memory.
  void read_on(delivery::DeviceMemoryPtr gpu) { gpu_ = std::move(gpu); }
  const delivery::DeviceMemoryPtr& gpu() const { return gpu_; }
  // Why it reads in main memory since the last call; empty: nothing has changed.
  std::string take_warning() { return std::exchange(warning_, {}); }
  void open_epochs(std::uint64_t count);
  std::uint64_t open_epochs() const { return open_epochs_; }

  // Joins the streams that the plan has for the consumer from a turn on, beside those it reads. On
  // failure nothing is joined. With a reserve, memory on the GPU comes from the reserve, and a
  // shortage there is refused. `may_wait`: a full GPU is refused also where main memory would do.
  struct Joining {
    stream::DeviceReserve* reserve = nullptr;
    bool may_wait = false;
    bool extends = true;  // the leg before may go on
    std::shared_ptr<stream::SlotPool> reuse = nullptr;
  };
  Result<Route> route(const std::shared_ptr<stream::StreamReader>& reader, const JobPlan& plan,
                      const job::OwnSeeks& own, job::Turn from, Joining how);
  // The route replaces the legs from its first turn on. False: the leg before cannot go on, as its
  // batches are gone.
  bool adopt(Route route);
  void leave(const Route& route) const;
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
  Result<bool> part(const std::shared_ptr<stream::StreamReader>& reader, job::Turn turn);

  // The first turn from `turn` on that no batch has been begun of. From `limit` on they do not
  // count: those of a planned swap may be made long before. Nothing further is begun until go_on().
  job::Turn hold(job::Turn turn, job::Turn limit);
  // The streams to let go on, without the consumer's lock.
  std::vector<std::shared_ptr<stream::Stream>> take_held() { return std::exchange(held_, {}); }
  void hold(const Route& route);

 private:
  Result<std::vector<stream::Leg>> join(const std::shared_ptr<stream::StreamReader>& reader,
                                        stream::StreamWish& wish, bool may_wait);
  stream::StreamWish wish(stream::Span span, job::Turn from, job::Turn until) const;

  const WayTerms& terms_;
  stream::Streams& streams_;
  delivery::DeviceMemoryPtr gpu_;
  std::string warning_;
  std::uint64_t open_epochs_ = 0;
  delivery::HolderId holder_ = 0;
  std::vector<Leg> legs_;
  job::Turn until_ = 0;
  std::vector<std::shared_ptr<stream::Stream>> held_;
};

}  // namespace spdld::session
