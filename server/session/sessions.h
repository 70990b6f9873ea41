// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "session/attacher.h"
#include "session/drain.h"
#include "session/headspace.h"
#include "session/job_queues.h"
#include "session/queries.h"
#include "session/rank_applies.h"
#include "session/reports.h"
#include "session/runner_starts.h"

namespace spdld::session {

// The jobs and the consumers that are attached to them: answers consumers on the dispatcher's
// thread; work that may block goes to threads of its parts. Operators come in through
// SessionService, from gRPC's threads. Thread-safe. Owned by the daemon; stop() before the executor
// goes.
class Sessions final : public delivery::DataService {
 public:
  explicit Sessions(SessionsDeps deps);
  ~Sessions() override;

  // Before consumers are told good-bye: jobs are kept as they are, for the next daemon to go on
  // with, and those that leave from now on are expected back there.
  void suspend();
  // Ends every session and waits for attaches under way.
  void stop();
  // Every few seconds: tells each waiting consumer the reason, and that the daemon lives.
  void heartbeat();
  // Every second: looks at the counters that rates are told of, keeps positions, and looks after
  // shared streams. Returns at once.
  void tick();
  // Consumers that are attached, or attaching.
  std::size_t attached() const;

  // delivery::DataService
  void attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) override;
  void release(delivery::Connection& connection, std::uint64_t lease) override;
  void seek(delivery::Connection& connection, const delivery::SeekRequest& request) override;
  void query(delivery::Connection& connection, const delivery::QueryRequest& request) override;
  void apply(delivery::Connection& connection, const delivery::ApplyWish& wish) override;
  void handed(delivery::Connection& connection, const delivery::HandedNotice& notice) override;
  void waited(delivery::Connection& connection, const delivery::WaitedNotice& notice) override;
  void detach(delivery::Connection& connection) override;
  void closed(delivery::Connection& connection, delivery::CloseCause cause) override;
  void exited(delivery::Connection& connection) override;

  // For SessionService.
  const SessionsDeps& deps() const { return deps_; }
  JobTable& table() { return table_; }
  JobRecords& records() { return records_; }
  Keeper& keeper() { return keeper_; }
  Operator& operate() { return operator_; }
  Headspace& headspace() { return headspace_; }
  Drain& drain() { return drain_; }
  SwapPlanner& planner() { return planner_; }
  Swaps& swaps() { return swaps_; }
  NewPipelines& new_pipelines() { return new_pipelines_; }
  Attacher& attacher() { return attacher_; }
  PipelineFinder& pipelines() { return pipelines_; }
  const Reports& reports() const { return reports_; }
  pipeline::Trials& trials() { return trials_; }

 private:
  const SessionsDeps deps_;
  pipeline::Trials trials_;
  stream::Streams streams_;
  JobTable table_;
  JobRecords records_;
  Keeper keeper_;
  Router router_;
  Changes changes_;
  Headspace headspace_;
  Drain drain_;
  Operator operator_;
  GpuOpener gpus_;
  RunnerStarts runner_starts_;
  SwapPlanner planner_;
  Swaps swaps_;
  NewPipelines new_pipelines_;
  JobQueues changing_;
  PipelineFinder pipelines_;
  Reports reports_;
  Queries queries_;
  RankApplies applies_;
  Attacher attacher_;
};

}  // namespace spdld::session
