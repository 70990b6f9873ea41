// SPDX-License-Identifier: Apache-2.0
#include "transform/image/crop_ops.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "op/op.h"
#include "transform/params/size_params.h"

namespace spdld::transform {
namespace {

constexpr int kAttempts = 10;  // of random_resized_crop, before it takes the middle

// Half, rounded to the even number: how torchvision places a crop in the middle.
int half_to_even(int value) {
  const int half = value / 2;
  return value % 2 != 0 && half % 2 != 0 ? half + 1 : half;
}

int center(int in, int crop) { return crop > in ? -((crop - in) / 2) : half_to_even(in - crop); }

class CenterCrop final : public GeometryOp {
 public:
  CenterCrop(std::vector<std::string> fields, Size size)
      : GeometryOp(std::move(fields)), size_(size) {}

  Result<bool> append_to(Geometry& chain, KeyedRng) const override {
    const Size in = chain.output();
    return chain.append_crop({center(in.width, size_.width), center(in.height, size_.height),
                              size_.width, size_.height});
  }
  std::optional<Size> output_size(std::optional<Size>) const override { return size_; }
  bool resizes() const override { return false; }

 private:
  Size size_;
};

struct CropPadding {
  int left = 0;
  int top = 0;
  int right = 0;
  int bottom = 0;
};

class RandomCrop final : public GeometryOp {
 public:
  RandomCrop(std::vector<std::string> fields, Size size, CropPadding padding, bool pad_if_needed)
      : GeometryOp(std::move(fields)),
        size_(size),
        padding_(padding),
        pad_if_needed_(pad_if_needed) {}

  Result<bool> append_to(Geometry& chain, KeyedRng rng) const override {
    const Size in = chain.output();
    int left = padding_.left;
    int top = padding_.top;
    int width = in.width + left + padding_.right;
    int height = in.height + top + padding_.bottom;
    if (!pad_if_needed_ && (width < size_.width || height < size_.height)) {
      return error(Code::kInvalidArgument, "random_crop: an image of " + to_text({width, height}) +
                                               " pixels is smaller than the crop, " +
                                               to_text(size_) +
                                               "; resize it before, or set pad_if_needed: true");
    }
    pad(width, left, size_.width);
    pad(height, top, size_.height);
    const int y = draw(rng, height - size_.height);
    const int x = draw(rng, width - size_.width);
    return chain.append_crop({x - left, y - top, size_.width, size_.height});
  }
  std::optional<Size> output_size(std::optional<Size>) const override { return size_; }
  bool resizes() const override { return false; }

 private:
  // What is missing is added on either side, so that the crop may lie anywhere over the image.
  static void pad(int& length, int& before, int crop) {
    const int missing = std::max(crop - length, 0);
    before += missing;
    length += 2 * missing;
  }
  static int draw(KeyedRng& rng, int most) {
    return static_cast<int>(rng.below(static_cast<std::uint64_t>(most) + 1));
  }

  Size size_;
  CropPadding padding_;
  bool pad_if_needed_;
};

class RandomResizedCrop final : public GeometryOp {
 public:
  struct Interval {
    double low = 0;
    double high = 0;
  };

  RandomResizedCrop(std::vector<std::string> fields, Size size, Interval scale, Interval ratio,
                    Interpolation interpolation, bool antialias)
      : GeometryOp(std::move(fields)),
        size_(size),
        scale_(scale),
        ratio_(ratio),
        log_ratio_{std::log(ratio.low), std::log(ratio.high)},
        interpolation_(interpolation),
        antialias_(antialias) {}

  Result<bool> append_to(Geometry& chain, KeyedRng rng) const override {
    Geometry longer = chain;
    if (!longer.append_crop(draw(chain.output(), rng)) ||
        !longer.append_resize(size_, interpolation_, antialias_)) {
      return false;
    }
    chain = longer;
    return true;
  }
  std::optional<Size> output_size(std::optional<Size>) const override { return size_; }
  bool resizes() const override { return true; }

 private:
  static int rounded(double value) {
    // To an image's own size at most one pixel is added by rounding; more is out of every range.
    return static_cast<int>(std::nearbyint(std::min(value, 1e9)));
  }

  Rect draw(Size in, KeyedRng& rng) const {
    const double area = static_cast<double>(in.width) * in.height;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const double target = area * rng.uniform(scale_.low, scale_.high);
      const double aspect = std::exp(rng.uniform(log_ratio_.low, log_ratio_.high));
      const int width = rounded(std::sqrt(target * aspect));
      const int height = rounded(std::sqrt(target / aspect));
      if (width <= 0 || width > in.width || height <= 0 || height > in.height) continue;
      const auto y = rng.below(static_cast<std::uint64_t>(in.height - height) + 1);
      const auto x = rng.below(static_cast<std::uint64_t>(in.width - width) + 1);
      return {static_cast<int>(x), static_cast<int>(y), width, height};
    }
    return middle(in);
  }

  // The largest crop in the middle whose ratio is allowed.
  Rect middle(Size in) const {
    const double ratio = static_cast<double>(in.width) / in.height;
    int width = in.width;
    int height = in.height;
    if (ratio < ratio_.low) {
      height = std::clamp(rounded(width / ratio_.low), 1, in.height);
    } else if (ratio > ratio_.high) {
      width = std::clamp(rounded(height * ratio_.high), 1, in.width);
    }
    return {(in.width - width) / 2, (in.height - height) / 2, width, height};
  }

  Size size_;
  Interval scale_;
  Interval ratio_;
  Interval log_ratio_;
  Interpolation interpolation_;
  bool antialias_;
};

Result<RandomResizedCrop::Interval> interval(const Params& params, const std::string& name) {
  const auto& values = params.get<std::vector<double>>(name);
  const RandomResizedCrop::Interval found{values.front(), values.back()};
  if (!(found.low > 0 && found.low <= found.high)) {
    return error(Code::kInvalidArgument, "random_resized_crop: " + name +
                                             " must be [low, high] with 0 < low <= high, but is [" +
                                             std::to_string(found.low) + ", " +
                                             std::to_string(found.high) + "]");
  }
  return found;
}

Result<std::unique_ptr<Op>> make_center_crop(const Params& params) {
  return std::make_unique<CenterCrop>(fields_of(params), crop_size(params));
}

Result<std::unique_ptr<Op>> make_random_crop(const Params& params) {
  CropPadding padding;
  if (params.has("padding")) {
    std::vector<std::int64_t> given = params.get<std::vector<std::int64_t>>("padding");
    if (given.size() == 3) {
      return error(Code::kInvalidArgument,
                   "random_crop: padding must be one number, [left and right, top and bottom], or "
                   "[left, top, right, bottom], but holds 3 numbers");
    }
    if (given.size() == 1) given.push_back(given[0]);
    const auto side = [&](std::size_t i) { return static_cast<int>(given[i % given.size()]); };
    padding = {.left = side(0), .top = side(1), .right = side(2), .bottom = side(3)};
  }
  return std::make_unique<RandomCrop>(fields_of(params), crop_size(params), padding,
                                      params.get<bool>("pad_if_needed"));
}

Result<std::unique_ptr<Op>> make_random_resized_crop(const Params& params) {
  SPDLD_ASSIGN(const auto scale, interval(params, "scale"));
  SPDLD_ASSIGN(const auto ratio, interval(params, "ratio"));
  return std::make_unique<RandomResizedCrop>(fields_of(params), crop_size(params), scale, ratio,
                                             interpolation_of(params),
                                             params.get<bool>("antialias"));
}

ParamInfo interval_param(std::string name, std::string doc, double low, double high, double max) {
  return {.name = std::move(name),
          .type = ParamType::kFloatList,
          .doc = std::move(doc),
          .default_value = std::vector<double>{low, high},
          .min = 0,
          .max = max,
          .min_items = 2,
          .max_items = 2};
}

constexpr char kCropSizeDoc[] = "[height, width], or one number for a square.";

}  // namespace

OpInfo center_crop_op() {
  return {.name = "center_crop",
          .doc = "Cuts out the middle; where the image is smaller, the rest is 0.",
          .params = {size_param(kCropSizeDoc), fields_param()},
          .make = make_center_crop};
}

OpInfo random_crop_op() {
  return {.name = "random_crop",
          .doc = "Cuts out a random part of the image.",
          .params = {size_param(kCropSizeDoc),
                     {.name = "padding",
                      .type = ParamType::kIntList,
                      .doc = "Pixels of 0 put around the image first: one number, [left and right, "
                             "top and bottom], or [left, top, right, bottom].",
                      .min = 0,
                      .max = kMaxSide,
                      .min_items = 1,
                      .max_items = 4,
                      .scalar_ok = true,
                      .nullable = true},
                     {.name = "pad_if_needed",
                      .type = ParamType::kBool,
                      .doc = "Whether an image smaller than the crop is padded with 0 instead of "
                             "being an error.",
                      .default_value = false},
                     fields_param()},
          .make = make_random_crop};
}

OpInfo random_resized_crop_op() {
  return {.name = "random_resized_crop",
          .doc = "Cuts out a random part of random shape and resizes it, as resize does.",
          .params = {size_param(kCropSizeDoc),
                     interval_param("scale", "The part's share of the image's area: [low, high].",
                                    0.08, 1.0, 1.0),
                     interval_param("ratio", "The part's width over its height: [low, high].",
                                    3.0 / 4.0, 4.0 / 3.0, 1e6),
                     interpolation_param(), antialias_param(), fields_param()},
          .make = make_random_resized_crop};
}

}  // namespace spdld::transform
