// SPDX-License-Identifier: Apache-2.0
#include "transform/image/pixel_ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/text/counted.h"
#include "op/op.h"
#include "transform/image/pixel_kernels.h"
#include "transform/params/size_params.h"

namespace spdld::transform {
namespace {

// How integers of the dtype are brought into [0, 1].
float unit_scale(DType dtype) { return dtype == DType::kUInt16 ? 1.0F / 65535.0F : 1.0F / 255.0F; }

class Normalize final : public PixelOp {
 public:
  Normalize(std::vector<std::string> fields, std::vector<double> mean, std::vector<double> std,
            DType dtype)
      : PixelOp(std::move(fields)), mean_(std::move(mean)), std_(std::move(std)), dtype_(dtype) {}

  Status append_to(PixelFormat& format, int channels) const override {
    if (format.normalized) {
      return {Code::kInvalidArgument,
              "normalize cannot follow another normalize; make them one stage"};
    }
    if (format.dtype == DType::kInt64)
      return {Code::kInvalidArgument,
              "normalize makes floats, and cannot follow 'to_dtype: {dtype: int64}'; remove that"};
    const auto count = static_cast<std::size_t>(channels);
    if (mean_.size() != 1 && mean_.size() != count) {
      return {Code::kInvalidArgument, "normalize: mean and std have " +
                                          counted(mean_.size(), "value") + ", but the image has " +
                                          counted(count, "channel") +
                                          "; give one for all or one for each"};
    }
    if (is_integer(format.dtype)) format.scale = unit_scale(format.dtype);
    format.dtype = dtype_;
    format.normalized = true;
    for (std::size_t c = 0; c < count; ++c) {
      format.mean[c] = static_cast<float>(mean_[mean_.size() == 1 ? 0 : c]);
      format.std[c] = static_cast<float>(std_[std_.size() == 1 ? 0 : c]);
    }
    return {};
  }

  // Recipes have means for pixels of 0 to 255 or of 0 to 1; both look right until nothing is
  // learnt.
  std::string doubt(const PixelFormat& format) const override {
    const bool scaled = is_integer(format.dtype) || format.scale != 1.0F;
    const int most =
        format.dtype == DType::kUInt16 || format.scale == unit_scale(DType::kUInt16) ? 65535 : 255;
    const auto large = [](double value) { return value > 1; };
    if (!scaled || (std::none_of(mean_.begin(), mean_.end(), large) &&
                    std::none_of(std_.begin(), std_.end(), large)))
      return {};
    return fmt::format(
        "normalize: mean {} and std {} look like values for pixels of 0 to {}, and pixels are "
        "divided by {} before: for those, the same is mean {} and std {}",
        listed(mean_, 1), listed(std_, 1), most, most, listed(mean_, most), listed(std_, most));
  }

 private:
  static std::string listed(std::vector<double> values, double divisor) {
    for (double& value : values) value /= divisor;
    return fmt::format("[{:.4g}]", fmt::join(values, ", "));
  }

  std::vector<double> mean_;
  std::vector<double> std_;
  DType dtype_;
};

class ToDtype final : public PixelOp {
 public:
  ToDtype(std::vector<std::string> fields, DType dtype, bool scale)
      : PixelOp(std::move(fields)), dtype_(dtype), scale_(scale) {}

  Status append_to(PixelFormat& format, int) const override {
    if (dtype_ == format.dtype) return {};
    if (dtype_ == DType::kInt64 && scale_)
      return {Code::kInvalidArgument,
              "to_dtype: 'scale' brings integers into [0, 1], where int64 has no values between; "
              "remove it"};
    if (is_integer(dtype_) || format.dtype == DType::kInt64 ||
        (dtype_ == DType::kInt64 && !is_integer(format.dtype))) {
      return {Code::kInvalidArgument, "to_dtype: " + std::string(dtype_name(dtype_)) +
                                          " cannot follow " +
                                          std::string(dtype_name(format.dtype)) +
                                          "; remove this stage or the one that made it so"};
    }
    // As in torchvision, `scale` says something about integers only.
    if (is_integer(format.dtype)) format.scale = scale_ ? unit_scale(format.dtype) : 1.0F;
    format.dtype = dtype_;
    return {};
  }

 private:
  DType dtype_;
  bool scale_;
};

Result<std::unique_ptr<Op>> make_normalize(const Params& params) {
  const auto& mean = params.get<std::vector<double>>("mean");
  const auto& std = params.get<std::vector<double>>("std");
  if (mean.size() != std.size()) {
    return error(Code::kInvalidArgument, "normalize: mean has " + counted(mean.size(), "value") +
                                             " and std " + std::to_string(std.size()) +
                                             "; give as many of one as of the other");
  }
  for (const double value : mean) {
    if (!std::isfinite(static_cast<float>(value))) {
      return error(Code::kInvalidArgument, "normalize: every mean must be a finite float32");
    }
  }
  for (const double value : std) {
    if (!std::isnormal(static_cast<float>(value))) {
      return error(Code::kInvalidArgument,
                   "normalize: every std must be a finite float32 other than 0: it is divided by");
    }
  }
  SPDLD_ASSIGN(const DType dtype, parse_dtype(params.get<std::string>("dtype")));
  return std::make_unique<Normalize>(fields_of(params), mean, std, dtype);
}

Result<std::unique_ptr<Op>> make_to_dtype(const Params& params) {
  SPDLD_ASSIGN(const DType dtype, parse_dtype(params.get<std::string>("dtype")));
  return std::make_unique<ToDtype>(fields_of(params), dtype, params.get<bool>("scale"));
}

ParamInfo channels_param(std::string name, std::string doc) {
  return {.name = std::move(name),
          .type = ParamType::kFloatList,
          .doc = std::move(doc),
          .min_items = 1,
          .max_items = 4,
          .scalar_ok = true};
}

}  // namespace

OpInfo normalize_op() {
  return {
      .name = "normalize",
      .doc =
          "Subtracts the mean and divides by the deviation of each channel; integers are brought "
          "into [0, 1] before.",
      .params = {channels_param("mean", "One value for each channel, or one for all."),
                 channels_param("std", "One value for each channel, or one for all."),
                 {.name = "dtype",
                  .type = ParamType::kString,
                  .doc = "What the values become.",
                  .default_value = std::string("float32"),
                  .choices = {"float32", "float16", "bfloat16"}},
                 fields_param()},
      .make = make_normalize};
}

OpInfo to_dtype_op() {
  return {.name = "to_dtype",
          .doc = "Changes the dtype of the pixels.",
          .params = {{.name = "dtype",
                      .type = ParamType::kString,
                      .doc = "What the values become.",
                      .choices = {"uint8", "uint16", "int64", "float32", "float16", "bfloat16"}},
                     {.name = "scale",
                      .type = ParamType::kBool,
                      .doc = "Whether integers are brought into [0, 1].",
                      .default_value = false},
                     fields_param()},
          .make = make_to_dtype};
}

}  // namespace spdld::transform
