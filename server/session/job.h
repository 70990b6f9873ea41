// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "delivery/data_server.h"
#include "engine/run.h"
#include "session/catalogue.h"
#include "session/failure_log.h"
#include "session/feed.h"
#include "session/store.h"
#include "session/timeline.h"

namespace spdld::session {

// One attached consumer. Guarded by Sessions, but for what is const and the feed itself.
struct Session {
  std::uint64_t id = 0;  // its connection's
  delivery::ConnectionPtr connection;
  std::shared_ptr<class Job> job;
  std::uint32_t shard = 0;
  std::shared_ptr<Feed> feed;  // none while the attach is under way
  bool queued = true;          // other attaches are before it
  bool closed = false;
};
using SessionPtr = std::shared_ptr<Session>;

// A list of so many still fits into one answer.
inline constexpr std::uint32_t kMaxShards = 1u << 16;

// One training run on one pipeline. What a rank may not change later is const; the rest is guarded
// by Sessions. The judge's part is thread-safe by itself: workers call it.
class Job final : public FailureJudge {
 public:
  static constexpr std::uint64_t kNoEnd = std::numeric_limits<std::uint64_t>::max();

  Job(JobKey key, PipelinePtr pipeline, std::shared_ptr<engine::Run> run, std::uint64_t seed,
      std::uint32_t num_shards, std::set<std::uint64_t> replaced, Store* store);

  Status may_replace(const engine::SampleFailure& failure) override;
  void stream_failed(const Status& status) override;

  std::uint64_t batch_size() const {
    return static_cast<std::uint64_t>(pipeline->plan->spec.batch.size);
  }
  bool last_known() const { return max_epochs > 0 && open_epochs >= max_epochs; }
  JobView view() const;
  StoredJob stored() const;

  const JobKey key;
  const PipelinePtr pipeline;
  const std::shared_ptr<engine::Run> run;
  const std::uint64_t seed;
  FailureLog failures;

  bool is_private = false;  // of one process, and gone with it
  bool declared = false;
  std::uint32_t incarnation = 0;
  EpochMode epochs = EpochMode::kAuto;
  std::uint64_t open_epochs = kNoEnd;
  std::uint64_t max_epochs = 0;
  StepAt start;
  Timeline timeline;
  std::map<std::string, std::string> vars;
  std::map<std::uint32_t, SessionPtr> shards;

 private:
  Store* const store_;  // none for private jobs: what they replaced is forgotten with them
};
using JobPtr = std::shared_ptr<Job>;

}  // namespace spdld::session
