// SPDX-License-Identifier: Apache-2.0
#include "transform/image/box_task.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/rng.h"
#include "base/text/counted.h"

namespace spdld::transform {
namespace {

using Edges = std::array<float, 4>;

Status store(std::span<const Edges> boxes, RowOutput& out) {
  const std::array<std::int64_t, 2> shape{static_cast<std::int64_t>(boxes.size()), 4};
  SPDLD_ASSIGN(std::byte* const to, out.resize(shape));
  if (!boxes.empty()) std::memcpy(to, boxes.data(), boxes.size_bytes());
  return {};
}

class BoxWorker final : public FieldWorker {
 public:
  explicit BoxWorker(const BoxTask& task) : task_(task) {}

  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out, std::uint64_t) override {
    SPDLD_TRY(read_boxes(sample.value(task_.value), task_.format, task_.normalized, sample.canvas,
                         task_.name, boxes_));
    SPDLD_TRY(move(sample));
    sift();
    SPDLD_TRY(store(left_, out[0]));
    for (std::size_t i = 0; i < task_.beside.size(); ++i) {
      const BoxTask::Beside& beside = task_.beside[i];
      SPDLD_TRY(std::visit([&](const auto& list) { return put(beside.name, list, out[i + 1]); },
                           numbers_of(sample.value(beside.value))));
    }
    return 0;
  }

  std::uint64_t kept_bytes() const override {
    return boxes_.capacity() * sizeof(Box) + left_.capacity() * sizeof(Edges) + kept_.capacity();
  }

 private:
  using Numbers = std::variant<std::span<const std::int64_t>, std::span<const double>>;

  static Numbers numbers_of(const Value& value) {
    if (const auto* integers = std::get_if<std::span<const std::int64_t>>(&value)) return *integers;
    return std::get<std::span<const double>>(value);
  }

  // Op by op, as the image goes, with the same draws.
  Status move(const SampleInput& sample) {
    Size size = sample.canvas;
    for (const GeometryStep& step : task_.geometry) {
      Geometry moved = Geometry::identity(size);
      SPDLD_ASSIGN(const bool fits,
                   step.op->append_to(moved, KeyedRng(mix64(sample.key, step.draw_key))));
      SPDLD_CHECK(fits);
      move_boxes(moved, size, boxes_);
      size = moved.output();
    }
    clip_boxes(size, boxes_);
    return {};
  }

  // What is left of the boxes, by the edges that go into the batch.
  void sift() {
    left_.clear();
    kept_.clear();
    for (const Box& box : boxes_) {
      const Edges edges{static_cast<float>(box.left), static_cast<float>(box.top),
                        static_cast<float>(box.right), static_cast<float>(box.bottom)};
      const double width = double{edges[2]} - double{edges[0]};
      const double height = double{edges[3]} - double{edges[1]};
      const bool kept = width > 0 && height > 0 && width >= task_.min_size &&
                        height >= task_.min_size && width * height >= task_.min_area;
      kept_.push_back(kept ? 1 : 0);
      if (kept) left_.push_back(edges);
    }
  }

  template <typename Number>
  Status put(const std::string& name, std::span<const Number> list, RowOutput& out) const {
    if (list.size() != kept_.size())
      return {Code::kDataLoss, "its field '" + name + "' has " + counted(list.size(), "value") +
                                   ", and '" + task_.name + "' " +
                                   counted(kept_.size(), "box", "boxes") +
                                   ": leave it out of 'with' of 'bounding_boxes'"};
    const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(left_.size())};
    SPDLD_ASSIGN(std::byte * to, out.resize(shape));
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (kept_[i] == 0) continue;
      std::memcpy(to, &list[i], sizeof(Number));
      to += sizeof(Number);
    }
    return {};
  }

  const BoxTask& task_;
  std::vector<Box> boxes_;
  std::vector<std::uint8_t> kept_;  // of boxes_
  std::vector<Edges> left_;
};

}  // namespace

std::unique_ptr<FieldWorker> BoxTask::make_worker() const {
  return std::make_unique<BoxWorker>(*this);
}

std::vector<std::size_t> BoxTask::values() const {
  std::vector<std::size_t> values{value};
  for (const Beside& list : beside) values.push_back(list.value);
  return values;
}

Status BoxChain::append(const GeometryOp& op, const StageKey& key) {
  task_->geometry.push_back({&op, key.draw_key});
  return {};
}

Result<std::unique_ptr<FieldTask>> BoxChain::finish(const std::string&) { return std::move(task_); }

}  // namespace spdld::transform
