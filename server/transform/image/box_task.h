// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "op/field_chain.h"
#include "op/op.h"
#include "transform/image/boxes.h"

namespace spdld::transform {

// What makes the boxes of an image, which have the edges [left, top, right, bottom] in pixels of
// what becomes of it, as a row of shape [n, 4]; and with them what the fields beside them tell of
// the boxes that are left. Runs after the image, by whose canvas it goes.
class BoxTask final : public FieldTask {
 public:
  // A list with one number a box.
  struct Beside {
    std::string name;
    std::size_t value = 0;
  };

  std::string name;
  std::size_t value = 0;  // SampleInput's
  BoxFormat format = BoxFormat::kXyxy;
  bool normalized = false;
  // A box that is smaller once it is clipped is left out, and so is one without area.
  double min_size = 1;  // of width and height
  double min_area = 1;
  std::vector<GeometryStep> geometry;
  std::vector<Beside> beside;

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  std::unique_ptr<FieldWorker> make_worker() const override;
  bool needs_canvas() const override { return true; }
  std::vector<std::size_t> values() const override;
  std::span<const GeometryStep> steps() const override { return geometry; }
  // Of the boxes, then of each beside them.
  void add_tensor(TensorSpec tensor) { tensors_.push_back(std::move(tensor)); }

 private:
  std::vector<TensorSpec> tensors_;
};

// What bounding_boxes begins, and what geometry appends to.
class BoxChain final : public FieldChain {
 public:
  explicit BoxChain(std::unique_ptr<BoxTask> task) : task_(std::move(task)) {}

  std::string_view noun() const override { return "boxes"; }
  bool has_geometry() const override { return true; }
  using FieldChain::append;
  Status append(const GeometryOp& op, const StageKey& key) override;
  Result<std::unique_ptr<FieldTask>> finish(const std::string& name) override;

 private:
  std::unique_ptr<BoxTask> task_;
};

}  // namespace spdld::transform
