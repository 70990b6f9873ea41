// SPDX-License-Identifier: Apache-2.0
#include "pipeline/one_batch.h"

#include <chrono>
#include <new>
#include <utility>

#include "base/mutex.h"
#include "engine/failure_log.h"
#include "engine/stream_port.h"

namespace spdld::pipeline {
namespace {

constexpr std::chrono::milliseconds kAskProgress{200};
// After so many intervals the progress also names the row that has taken longest.
constexpr int kPatience = 10;

// Asks for one batch and waits for it. The executor shares it: a batch that nobody waits for any
// more keeps its slot until its last row has ended.
class OneBatch final : public engine::StreamPort {
 public:
  OneBatch(OneBatchOptions options, std::unique_ptr<std::byte[]> slot)
      : options_(std::move(options)),
        failures_(options_.replace_budget, {}, 0),
        slot_(std::move(slot)) {}

  std::optional<engine::BatchOrder> open() override {
    MutexLock lock(mutex_);
    if (std::exchange(opened_, true)) return std::nullopt;
    return engine::BatchOrder{.epoch = options_.at.epoch,
                              .step = options_.at.step,
                              .rows = options_.rows,
                              .next_position = options_.rows.first + options_.rows.valid,
                              .slot = slot_.get(),
                              .ticket = 0};
  }
  void commit(const engine::BatchOrder&) override { finish(); }
  void abandon(const engine::BatchOrder&) override {
    fail({.status = Status(Code::kCancelled, "the daemon makes no batches any more")});
    finish();
  }
  Status may_replace(const engine::SampleFailure& failure) override {
    bool is_new = false;
    return failures_.admit(failure, is_new);
  }
  void fail(const engine::StreamFailure& failure) override {
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = failure.status;
  }

  // Returns whether the batch has ended, waiting for at most kAskProgress.
  bool wait_a_while() {
    MutexLock lock(mutex_);
    if (!done_) changed_.wait_for(mutex_, kAskProgress);
    return done_;
  }
  // Once it has ended.
  Result<MadeBatch> take() {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return tl::unexpected<Status>(failure_);
    return MadeBatch{.slot = std::move(slot_), .failures = failures_.recent()};
  }

 private:
  void finish() {
    MutexLock lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  const OneBatchOptions options_;
  engine::FailureLog failures_;
  Mutex mutex_;
  CondVar changed_;  // signalled when the batch ends
  std::unique_ptr<std::byte[]> slot_ SPDLD_GUARDED_BY(mutex_);
  bool opened_ SPDLD_GUARDED_BY(mutex_) = false;
  bool done_ SPDLD_GUARDED_BY(mutex_) = false;
  Status failure_ SPDLD_GUARDED_BY(mutex_);
};

// Pages that no row is written to are never touched.
Result<std::unique_ptr<std::byte[]>> slot_for(const engine::Plan& plan) {
  std::unique_ptr<std::byte[]> slot(new (std::nothrow) std::byte[plan.layout.slot_bytes()]);
  if (slot == nullptr)
    return error(Code::kResourceExhausted, "there is no memory for a batch of " +
                                               std::to_string(plan.layout.slot_bytes()) +
                                               " bytes: lower batch.size");
  return slot;
}

}  // namespace

Result<MadeBatch> make_one_batch(const std::shared_ptr<engine::Run>& run, OneBatchOptions options,
                                 engine::Executor& executor, const ListingProgress& progress) {
  SPDLD_ASSIGN(std::unique_ptr<std::byte[]> slot, slot_for(run->plan()));
  const auto batch = std::make_shared<OneBatch>(std::move(options), std::move(slot));
  const engine::Executor::Starving starving(executor, batch);
  const engine::StreamId stream = executor.open_stream(run, batch);
  bool wanted = true;
  for (int waited = 0; !batch->wait_a_while() && wanted; ++waited) {
    if (!progress) continue;
    const engine::Executor::Headway headway = executor.headway(stream);
    std::string what = "rows of a batch";
    if (waited >= kPatience && !headway.doing.empty()) what += " (" + headway.doing + ")";
    // A row moves when it is read and when it is made.
    wanted = progress(headway.moves / 2, what, run->wanted_runners());
  }
  executor.close_stream(stream);
  if (!wanted) return error(Code::kCancelled, "nobody waits for the batch any more");
  return batch->take();
}

}  // namespace spdld::pipeline
