// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/byte_buffer.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/image_worker.h"
#include "engine/plan.h"
#include "engine/stage_stats.h"
#include "engine/stream_port.h"
#include "source/sampler.h"
#include "source/source.h"

namespace spdld::engine {

// One row of one batch on its way: which item, how far it has come. Owned by the executor, which
// hands it to one thread at a time; `bytes` belongs to the source while a fetch is pending.
struct Row {
  const BatchOrder* order = nullptr;
  StreamPort* port = nullptr;
  ByteBuffer* packed = nullptr;  // encoded bytes stay here until the batch is packed
  std::uint64_t index = 0;       // in the batch
  std::uint64_t item = 0;
  std::uint32_t attempt = 0;  // 0: the item that the order says; then substitutes
  bool fetched = false;
  Status fetch_status;
  ByteBuffer bytes;
  std::chrono::nanoseconds since{0};  // fetching since, then ready since
};

enum class RowState {
  kDone,
  kPending,  // the source has it: hands off
  kFailed,   // the stream fails
};

// A plan executing on one source in one order, for one job: makes rows. Which row when is the
// executor's matter. Immutable but for counters and what each worker owns; worker `w` may call
// process() while others do the same with their own numbers.
class Run {
 public:
  Run(std::shared_ptr<const Plan> plan, std::shared_ptr<source::Source> source,
      source::Sampler sampler, std::uint64_t seed, unsigned workers, double weight,
      const Clock& clock);

  // Takes the row as far as it gets without blocking. kPending: `sink` is told `token` once the
  // bytes are there; until process() is called again nobody touches the row. kFailed: `failure`
  // says why.
  RowState process(Row& row, unsigned worker, source::FetchSink& sink, std::uint64_t token,
                   Status& failure);

  // The pending fetch of `row` has ended: process() may be called again.
  void fetched(Row& row, Status status);

  // Packs the encoded bytes of a batch's rows into its slot.
  Status pack(const BatchOrder& order, const std::vector<ByteBuffer>& rows) const;

  const Plan& plan() const { return *plan_; }
  const source::Source& source() const { return *source_; }
  const source::Sampler& sampler() const { return sampler_; }
  double weight() const { return weight_; }
  const StageStats& fetch_stats() const { return fetch_stats_; }
  const StageStats& process_stats() const { return process_stats_; }

 private:
  Result<source::FetchState> fetch(Row& row, source::FetchSink& sink, std::uint64_t token);
  Status make(Row& row, unsigned worker);
  // Chooses the substitute, or says why there is none.
  Status replace(Row& row, const Status& why) const;
  SampleFailure failure_of(const Row& row, const Status& why) const;
  Status final_error(const Row& row, const Status& why) const;

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<source::Source> source_;
  const source::Sampler sampler_;
  const std::uint64_t seed_;
  const double weight_;
  const Clock& clock_;
  StageStats fetch_stats_;
  StageStats process_stats_;
  std::vector<std::unique_ptr<ImageWorker>> image_workers_;  // [worker], made when first needed
};

}  // namespace spdld::engine
