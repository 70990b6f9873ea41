// SPDX-License-Identifier: Apache-2.0
#include "transform/image/flip_ops.h"

#include <string>
#include <utility>
#include <vector>

#include "op/op.h"
#include "transform/params/size_params.h"

namespace spdld::transform {
namespace {

class RandomHorizontalFlip final : public GeometryOp {
 public:
  RandomHorizontalFlip(std::vector<std::string> fields, double p)
      : GeometryOp(std::move(fields)), p_(p) {}

  Result<bool> append_to(Geometry& chain, KeyedRng rng) const override {
    if (rng.uniform() < p_) chain.append_flip();
    return true;
  }
  std::optional<Size> output_size(std::optional<Size> in) const override { return in; }
  bool resizes() const override { return false; }

 private:
  double p_;
};

Result<std::unique_ptr<Op>> make_random_horizontal_flip(const Params& params) {
  return std::make_unique<RandomHorizontalFlip>(fields_of(params), params.get<double>("p"));
}

}  // namespace

OpInfo random_horizontal_flip_op() {
  return {.name = "random_horizontal_flip",
          .doc = "Mirrors the image left to right, or not.",
          .params = {{.name = "p",
                      .type = ParamType::kFloat,
                      .doc = "How likely it is mirrored.",
                      .default_value = 0.5,
                      .min = 0,
                      .max = 1},
                     fields_param()},
          .make = make_random_horizontal_flip};
}

}  // namespace spdld::transform
