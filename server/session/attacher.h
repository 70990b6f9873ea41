// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/blocking_pool.h"
#include "session/gpus.h"
#include "session/keeper.h"
#include "session/operator.h"
#include "session/pipeline_finder.h"
#include "session/router.h"
#include "session/runner_starts.h"
#include "session/shard_claims.h"
#include "stream/device_reserve.h"
#include "stream/streams.h"

namespace spdld::session {

// Brings consumers to their shards. An attach that waits for a listing, for a change of its job or
// for memory on its GPU has no thread meanwhile: it begins anew when that is there, and listings
// that it asked for before are answered at once then. Owned by Sessions. Thread-safe.
class Attacher {
 public:
  struct Parts {
    const SessionsDeps& deps;
    JobTable& table;
    JobRecords& records;
    stream::Streams& streams;
    Router& router;
    Keeper& keeper;
    Operator& operators;
    const Drain& drain;
    PipelineFinder& pipelines;
    GpuOpener& gpus;
    RunnerStarts& runner_starts;
  };
  explicit Attacher(const Parts& parts);

  // Returns at once; the answer goes to the connection.
  void attach(const delivery::ConnectionPtr& connection, const delivery::AttachRequest& request)
      SPDLD_EXCLUDES(table_.mutex());
  // Attaches that have no thread yet, by user.
  std::map<uid_t, std::size_t> waiting() const { return threads_->waiting(); }
  // Attaches that wait for room try again: when a consumer has left its GPU, and every second, as a
  // process that has ended may give back memory there which nobody tells the daemon of.
  void attach_again_for_room() SPDLD_EXCLUDES(table_.mutex());
  void left_gpu(const delivery::DeviceMemoryPtr& gpu);
  void stop() SPDLD_EXCLUDES(table_.mutex());

 private:
  class Host;

  void post_attach(const SessionPtr& session, const delivery::AttachRequest& request);
  void attach_slowly(const SessionPtr& session, const delivery::AttachRequest& request);
  Status try_attach(const SessionPtr& session, delivery::AttachRequest request);
  // Up to the session's place in its job. False: it waits without a thread.
  Result<bool> take_place(const SessionPtr& session, delivery::AttachRequest& request);
  // The session's asker, that has the attach begin anew; null: the session has ended.
  std::shared_ptr<pipeline::ListingAsker> asker_of(const SessionPtr& session,
                                                   const delivery::AttachRequest& request)
      SPDLD_EXCLUDES(table_.mutex());
  // Finds out whether the data that the consumer reads are others by now than were listed, also if
  // it has left meanwhile; sends it a notice of a change that it was not told.
  void tell_of_changes(const delivery::ConnectionPtr& connection,
                       const pipeline::PipelinePtr& pipeline, const std::vector<std::string>& told)
      SPDLD_EXCLUDES(table_.mutex());
  // The data of the session's job may have been moved or replaced since they were opened. Returns
  // the pipeline that the job runs last.
  // Those of its job's functions.
  void start_runners(const Session& session) SPDLD_EXCLUDES(table_.mutex());
  pipeline::PipelinePtr look_at_data(const SessionPtr& session) SPDLD_EXCLUDES(table_.mutex());
  // The session's consumer at its streams, where its job and the request place it.
  Result<std::shared_ptr<Consumer>> connect(const Session& session,
                                            const delivery::AttachRequest& request,
                                            bool gpu_may_have_room, stream::DeviceReserve& reserve)
      SPDLD_REQUIRES(table_.mutex());
  void welcome(const Session& session) const SPDLD_REQUIRES(table_.mutex());
  // Begins the consumer, as the last step: nothing fails after it. False: GpuOpener::open() has not
  // been called for a phase that the job is to run. Nothing: it waits without a thread for a change
  // of its job to be written. With `gpu_may_have_room`, a full GPU is refused also where main
  // memory would do. The second one fails where the reserve lacks memory on the GPU.
  pipeline::Asked<bool> begin(const SessionPtr& session, const delivery::AttachRequest& request,
                              bool gpu_may_have_room) SPDLD_EXCLUDES(table_.mutex());
  pipeline::Asked<bool> begin(const SessionPtr& session, const delivery::AttachRequest& request,
                              bool gpu_may_have_room, stream::DeviceReserve& reserve)
      SPDLD_EXCLUDES(table_.mutex());
  // The same, once the GPU has room: memory of a consumer that has just left is given back after
  // it. Nothing: it waits for that without a thread, for some seconds.
  pipeline::Asked<bool> begin_with_room(const SessionPtr& session,
                                        const delivery::AttachRequest& request)
      SPDLD_EXCLUDES(table_.mutex());

  const SessionsDeps& deps_;
  JobTable& table_;
  JobRecords& records_;
  stream::Streams& streams_;
  Router& router_;
  Keeper& keeper_;
  Operator& operator_;
  const Drain& drain_;
  PipelineFinder& pipelines_;
  GpuOpener& gpus_;
  RunnerStarts& runner_starts_;
  ShardClaims claims_;
  // By which it is looked whether data have changed, by the connection that came.
  std::map<std::uint64_t, std::shared_ptr<pipeline::ListingAsker>> looks_
      SPDLD_GUARDED_BY(table_.mutex());
  const std::shared_ptr<BlockingPool> threads_;
};

}  // namespace spdld::session
