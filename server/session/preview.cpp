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
  OneBatch(std::uint64_t rows, std::unique_ptr<std::byte[]> slot)
      : rows_(rows), slot_(std::move(slot)) {}

  std::optional<engine::BatchOrder> open() override {
    MutexLock lock(mutex_);
    if (std::exchange(opened_, true)) return std::nullopt;
    return engine::BatchOrder{.epoch = 0,
                              .step = 0,
                              .rows = {.first = 0, .rows = rows_, .valid = rows_},
                              .next_position = rows_,
                              .slot = slot_.get(),
                              .ticket = 0};
  }
  void commit(const engine::BatchOrder&) override { finish(); }
  void abandon(const engine::BatchOrder&) override { finish(); }
  Status may_replace(const engine::SampleFailure&) override { return {}; }
  void fail(const Status& status) override {
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = status;
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

  const std::uint64_t rows_;
  const std::unique_ptr<std::byte[]> slot_;
  Mutex mutex_;
  CondVar changed_;
  bool opened_ SPDLD_GUARDED_BY(mutex_) = false;
  bool done_ SPDLD_GUARDED_BY(mutex_) = false;
  Status failure_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace

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
                                           executor.threads(), 1.0, clock);
  // Laid out as for a whole batch, of which only the first rows are written: no page of the rest is
  // touched.
  std::unique_ptr<std::byte[]> slot(new (std::nothrow) std::byte[plan.layout.slot_bytes()]);
  if (slot == nullptr)
    return error(Code::kResourceExhausted, "there is no memory for a batch of " +
                                               std::to_string(plan.layout.slot_bytes()) +
                                               " bytes: preview with a smaller batch.size");
  auto batch = std::make_shared<OneBatch>(rows, std::move(slot));
  const engine::StreamId stream = executor.open_stream(run, batch);
  Status made = batch->wait();
  executor.close_stream(stream);
  if (!made.ok()) return tl::unexpected<Status>(std::move(made));

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
