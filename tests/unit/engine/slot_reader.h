// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/plan/plan.h"
#include "engine/stream_port.h"

namespace spdld::engine {

// Has `steps` batches to be made, each in a slot of its own, and reads what was made.
class SlotReader final : public StreamPort {
 public:
  SlotReader(std::shared_ptr<const Plan> plan, std::uint64_t steps)
      : plan_(std::move(plan)),
        layout_(plan_->layout),
        slots_(steps, std::vector<std::byte>(layout_.slot_bytes())) {}

  std::optional<BatchOrder> open() override {
    MutexLock lock(mutex_);
    if (next_ == slots_.size()) return std::nullopt;
    const std::uint64_t step = next_++;
    return BatchOrder{
        .epoch = 0,
        .step = step,
        .rows = {.first = step * layout_.rows(), .rows = layout_.rows(), .valid = layout_.rows()},
        .slot = slots_[step].data()};
  }
  void commit(const BatchOrder& order) override {
    MutexLock lock(mutex_);
    ++committed_[order.step];
    changed_.notify_all();
  }
  void abandon(const BatchOrder& order) override {
    MutexLock lock(mutex_);
    ++abandoned_[order.step];
    changed_.notify_all();
  }
  Status may_replace(const SampleFailure&) override { return {}; }
  void fail(const StreamFailure& failure) override {
    MutexLock lock(mutex_);
    failed_ = failure.status;
    next_ = slots_.size();
  }

  // Until each of the batches opened has ended; each ends once.
  void wait_for_end(std::uint64_t batches) {
    MutexLock lock(mutex_);
    while (committed_.size() + abandoned_.size() < batches) changed_.wait(mutex_);
    for (const auto* const ended : {&committed_, &abandoned_}) {
      for (const auto& [step, times] : *ended) EXPECT_EQ(times, 1) << step;
    }
  }
  std::uint64_t committed() {
    MutexLock lock(mutex_);
    return committed_.size();
  }
  bool has_committed(std::uint64_t step) {
    MutexLock lock(mutex_);
    return committed_.contains(step);
  }
  Status failed() {
    MutexLock lock(mutex_);
    return failed_;
  }
  // Of a field whose rows are bytes.
  std::string row(std::uint64_t position, std::size_t of = 0) const {
    const std::byte* const slot = slots_[position / layout_.rows()].data();
    const wire::FieldLayout& field = layout_.fields()[of];
    std::int64_t range[2];
    std::memcpy(range, slot + field.offsets_offset + position % layout_.rows() * sizeof range[0],
                sizeof range);
    return {reinterpret_cast<const char*>(slot + field.offset + range[0]),
            static_cast<std::size_t>(range[1] - range[0])};
  }

  // Of a field whose rows are stacked.
  std::string stacked(std::uint64_t position, std::size_t of) const {
    const auto row = static_cast<std::size_t>(layout_.row_bytes(of));
    const std::byte* const slot = slots_[position / layout_.rows()].data();
    return {reinterpret_cast<const char*>(slot + layout_.fields()[of].offset +
                                          position % layout_.rows() * row),
            row};
  }

  // Of a field of one value a row.
  template <typename T>
  T value(std::uint64_t position, std::size_t of) const {
    T value{};
    std::memcpy(&value,
                slots_[position / layout_.rows()].data() + layout_.fields()[of].offset +
                    position % layout_.rows() * sizeof value,
                sizeof value);
    return value;
  }

  std::uint64_t item(std::uint64_t position) const {
    return value<std::uint64_t>(position, plan_->tensors.size());
  }
  bool valid(std::uint64_t position) const {
    return value<bool>(position, plan_->tensors.size() + 1);
  }

 private:
  const std::shared_ptr<const Plan> plan_;
  const BatchLayout& layout_;
  std::vector<std::vector<std::byte>> slots_;
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t next_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, int> committed_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::uint64_t, int> abandoned_ SPDLD_GUARDED_BY(mutex_);
  Status failed_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::engine
