// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "op/field_chain.h"
#include "op/field_task.h"

namespace spdld::media {

// Takes values out of a part that is JSON, which are the sample's from then on like those that the
// listing knows. Runs before the tasks that take them.
class JsonTask final : public FieldTask {
 public:
  // What a pointer leads to, and the value that it becomes.
  struct Found {
    std::string field = {};
    std::string pointer = {};              // as it was written
    std::vector<std::string> tokens = {};  // what it leads along
    ValueType type = ValueType::kText;
    std::size_t value = 0;  // SampleInput's
  };

  std::string name;
  std::size_t request = 0;
  std::uint64_t max_bytes = 0;  // of the part
  std::vector<Found> found;

  // The part itself, if it is kept.
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  std::unique_ptr<FieldWorker> make_worker() const override;
  bool makes_values() const override { return true; }
  void keep(TensorSpec tensor) { tensors_.push_back(std::move(tensor)); }

 private:
  std::vector<TensorSpec> tensors_;
};

// What decode_json makes; no op works on it.
class JsonChain final : public FieldChain {
 public:
  explicit JsonChain(std::unique_ptr<JsonTask> task) : task_(std::move(task)) {}

  std::string_view noun() const override { return "JSON"; }
  Result<std::unique_ptr<FieldTask>> finish(const std::string& name) override;

 private:
  std::unique_ptr<JsonTask> task_;
};

}  // namespace spdld::media
