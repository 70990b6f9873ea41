// SPDX-License-Identifier: Apache-2.0
#include "transform/image/resize_ops.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "op/op.h"
#include "transform/params/size_params.h"

namespace spdld::transform {
namespace {

// Beyond this a side of a resized image is refused: a line of 1 x 60000 pixels would become one of
// millions.
constexpr std::int64_t kMaxScaledSide = 1 << 22;

class Resize final : public GeometryOp {
 public:
  Resize(std::vector<std::string> fields, std::vector<std::int64_t> size,
         std::optional<std::int64_t> max_size, Interpolation interpolation, bool antialias)
      : GeometryOp(std::move(fields)),
        size_(std::move(size)),
        max_size_(max_size),
        interpolation_(interpolation),
        antialias_(antialias) {}

  Result<bool> append_to(Geometry& chain, KeyedRng) const override {
    const std::optional<Size> to = scaled(chain.output());
    if (!to) {
      return error(Code::kInvalidArgument,
                   "resize: an image of " + to_text(chain.output()) +
                       " pixels is too long and narrow for a short side of " +
                       std::to_string(size_.front()) + "; give max_size, or both sides as size");
    }
    return chain.append_resize(*to, interpolation_, antialias_);
  }

  std::optional<Size> output_size(std::optional<Size> in) const override {
    if (size_.size() == 2) return Size{static_cast<int>(size_[1]), static_cast<int>(size_[0])};
    return in ? scaled(*in) : std::nullopt;
  }

  bool resizes() const override { return true; }

 private:
  // One number is the short side; the long one follows and is rounded down.
  std::optional<Size> scaled(Size in) const {
    if (size_.size() == 2) return Size{static_cast<int>(size_[1]), static_cast<int>(size_[0])};
    const std::int64_t in_short = std::min(in.width, in.height);
    const std::int64_t in_long = std::max(in.width, in.height);
    std::int64_t to_short = size_.front();
    std::int64_t to_long = to_short * in_long / in_short;
    if (max_size_ && to_long > *max_size_) {
      to_short = std::max<std::int64_t>(*max_size_ * to_short / to_long, 1);
      to_long = *max_size_;
    }
    if (to_long > kMaxScaledSide) return std::nullopt;
    const auto shorter = static_cast<int>(to_short);
    const auto longer = static_cast<int>(to_long);
    return in.width <= in.height ? Size{shorter, longer} : Size{longer, shorter};
  }

  std::vector<std::int64_t> size_;  // the short side, or height and width
  std::optional<std::int64_t> max_size_;
  Interpolation interpolation_;
  bool antialias_;
};

Result<std::unique_ptr<Op>> make_resize(const Params& params) {
  const auto& size = params.get<std::vector<std::int64_t>>("size");
  std::optional<std::int64_t> max_size;
  if (params.has("max_size")) {
    max_size = params.get<std::int64_t>("max_size");
    if (size.size() == 2) {
      return error(
          Code::kInvalidArgument,
          "resize: max_size bounds the long side, but size gives both sides; leave one out");
    }
    if (*max_size <= size.front()) {
      return error(Code::kInvalidArgument,
                   "resize: max_size must be greater than size, the short side (" +
                       std::to_string(size.front()) + "), but is " + std::to_string(*max_size));
    }
  }
  return std::make_unique<Resize>(fields_of(params), size, max_size, interpolation_of(params),
                                  params.get<bool>("antialias"));
}

}  // namespace

OpInfo resize_op() {
  return {.name = "resize",
          .doc =
              "Resizes the image to [height, width], or to a short side and its proportion; alpha "
              "is a channel like others, with which colours are not multiplied.",
          .params = {size_param("[height, width], or one number: the short side, the long one in "
                                "proportion."),
                     interpolation_param(),
                     {.name = "max_size",
                      .type = ParamType::kInt,
                      .doc = "What the long side may be at most, where size is the short side.",
                      .min = 1,
                      .max = kMaxSide,
                      .nullable = true},
                     antialias_param(),
                     fields_param()},
          .make = make_resize};
}

}  // namespace spdld::transform
