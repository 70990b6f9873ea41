// SPDX-License-Identifier: Apache-2.0
#include "session/preview.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/run.h"
#include "engine/stream_port.h"

namespace spdld::session {
namespace {

// Asks for one batch and waits for it.
class OneBatch final : public engine::StreamPort {
 public:
  // At `at`, in `slot`.
  OneBatch(StepAt at, const source::BatchRows& rows, std::unique_ptr<std::byte[]> slot)
      : at_(at), rows_(rows), slot_(std::move(slot)) {}

  std::optional<engine::BatchOrder> open() override {
    MutexLock lock(mutex_);
    if (std::exchange(opened_, true)) return std::nullopt;
    return engine::BatchOrder{.epoch = at_.epoch,
                              .step = at_.step,
                              .rows = rows_,
                              .next_position = rows_.first + rows_.valid,
                              .slot = slot_.get(),
                              .ticket = 0};
  }
  void commit(const engine::BatchOrder&) override { finish(); }
  void abandon(const engine::BatchOrder&) override { finish(); }
  Status may_replace(const engine::SampleFailure&) override { return {}; }
  void fail(const engine::StreamFailure& failure) override {
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = failure.status;
  }

  Status wait() {
    MutexLock lock(mutex_);
    while (!done_) changed_.wait(mutex_);
    return failure_;
  }
  const std::byte* slot() const { return slot_.get(); }

 private:
  void finish() {
    MutexLock lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  const StepAt at_;
  const source::BatchRows rows_;
  const std::unique_ptr<std::byte[]> slot_;
  Mutex mutex_;
  CondVar changed_;
  bool opened_ SPDLD_GUARDED_BY(mutex_) = false;
  bool done_ SPDLD_GUARDED_BY(mutex_) = false;
  Status failure_ SPDLD_GUARDED_BY(mutex_);
};

// Memory laid out as for a whole batch; no page of what is not written is touched.
Result<std::unique_ptr<std::byte[]>> memory_for(const engine::Plan& plan) {
  std::unique_ptr<std::byte[]> slot(new (std::nothrow) std::byte[plan.layout.slot_bytes()]);
  if (slot == nullptr)
    return error(Code::kResourceExhausted, "there is no memory for a batch of " +
                                               std::to_string(plan.layout.slot_bytes()) +
                                               " bytes: lower batch.size");
  return slot;
}

Status make(const std::shared_ptr<engine::Run>& run, const std::shared_ptr<OneBatch>& batch,
            engine::Executor& executor) {
  const engine::StreamId stream = executor.open_stream(run, batch);
  Status made = batch->wait();
  executor.close_stream(stream);
  return made;
}

}  // namespace

Status make_trial(const std::shared_ptr<engine::Run>& run, StepAt at, const source::BatchRows& rows,
                  engine::Executor& executor) {
  SPDLD_ASSIGN(std::unique_ptr<std::byte[]> slot, memory_for(run->plan()));
  return make(run, std::make_shared<OneBatch>(at, rows, std::move(slot)), executor);
}

Result<PreviewView> make_preview(const PipelineVersion& pipeline, std::uint64_t rows,
                                 engine::Executor& executor, const Clock& clock) {
  const engine::Plan& plan = *pipeline.plan;
  if (!plan.image)
    return error(Code::kFailedPrecondition,
                 "pipeline '" + plan.spec.name +
                     "' delivers encoded bytes: add a decode stage to see pictures");
  const std::uint64_t items = pipeline.source->size();
  rows = std::clamp<std::uint64_t>(rows, 1, std::min(items, plan.layout.rows()));
  const std::uint64_t seed = plan.spec.seed;
  auto run = std::make_shared<engine::Run>(pipeline.plan, pipeline.source,
                                           source::Sampler(items, plan.spec.shuffle, seed), seed,
                                           executor.threads(), engine::RunLimits{}, clock);
  SPDLD_ASSIGN(std::unique_ptr<std::byte[]> slot, memory_for(plan));
  const auto batch = std::make_shared<OneBatch>(
      StepAt{}, source::BatchRows{.first = 0, .rows = rows, .valid = rows}, std::move(slot));
  SPDLD_TRY(make(run, batch, executor));

  PreviewView view;
  view.tensors = plan.tensors;
  view.classes = pipeline.source->classes();
  for (std::size_t field = 0; field < plan.tensors.size(); ++field) {
    const std::byte* first = batch->slot() + plan.layout.fields()[field].offset;
    view.data.emplace_back(first, first + rows * plan.layout.row_bytes(field));
  }
  const wire::FieldLayout& index = plan.layout.fields()[plan.tensors.size()];
  view.indices.resize(rows);
  std::memcpy(view.indices.data(), batch->slot() + index.offset, rows * sizeof(std::int64_t));
  for (const std::int64_t item : view.indices)
    view.uris.push_back(pipeline.source->uri(static_cast<std::uint64_t>(item)));
  return view;
}

}  // namespace spdld::session
