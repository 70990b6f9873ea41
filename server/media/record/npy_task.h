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

// Makes a tensor of a part that is an .npy file, or of one array of an .npz: in C order, and in the
// byte order of this machine.
class NpyTask final : public FieldTask {
 public:
  std::string name;
  std::size_t request = 0;
  std::string array;  // of an .npz; empty: the part is an .npy
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  // -1 where rows may differ

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  std::unique_ptr<FieldWorker> make_worker() const override;
  void add_tensor(TensorSpec tensor) { tensors_.push_back(std::move(tensor)); }

 private:
  std::vector<TensorSpec> tensors_;
};

// What decode_npy makes; no op works on it.
class NpyChain final : public FieldChain {
 public:
  explicit NpyChain(std::unique_ptr<NpyTask> task) : task_(std::move(task)) {}

  std::string_view noun() const override { return "arrays"; }
  Result<std::unique_ptr<FieldTask>> finish(const std::string&) override {
    return std::move(task_);
  }

 private:
  std::unique_ptr<NpyTask> task_;
};

}  // namespace spdld::media
