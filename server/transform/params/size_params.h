// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "op/geometry.h"
#include "op/params.h"

// What the tables of several geometry ops share.
namespace spdld::transform {

inline constexpr int kMaxSide = 65535;  // of an image that an op makes by a given size

inline std::string to_text(Size size) {
  return std::to_string(size.width) + "x" + std::to_string(size.height);
}

// Which fields an op works on, where that is not all that it fits.
inline ParamInfo fields_param() {
  return {.name = "fields",
          .type = ParamType::kStringList,
          .doc =
              "The fields it works on, which share one draw; not given: every image, mask and "
              "box that is decoded by then.",
          .min_items = 1,
          .scalar_ok = true,
          .nullable = true};
}

inline std::vector<std::string> fields_of(const Params& params) {
  if (!params.has("fields")) return {};
  return params.get<std::vector<std::string>>("fields");
}

inline ParamInfo size_param(std::string doc) {
  return {.name = "size",
          .type = ParamType::kIntList,
          .doc = std::move(doc),
          .min = 1,
          .max = kMaxSide,
          .min_items = 1,
          .max_items = 2,
          .scalar_ok = true};
}

// [height, width], or one number for a square.
inline Size crop_size(const Params& params) {
  const auto& size = params.get<std::vector<std::int64_t>>("size");
  return {static_cast<int>(size.back()), static_cast<int>(size.front())};
}

inline ParamInfo interpolation_param() {
  return {.name = "interpolation",
          .type = ParamType::kString,
          .doc = "How pixels are made from their neighbours.",
          .default_value = std::string("bilinear"),
          .choices = {"nearest", "nearest-exact", "bilinear", "bicubic"}};
}

inline ParamInfo antialias_param() {
  return {.name = "antialias",
          .type = ParamType::kBool,
          .doc =
              "Whether a smaller image is made from all pixels of the larger one, as Pillow does, "
              "or only from those next to each point.",
          .default_value = true};
}

inline Interpolation interpolation_of(const Params& params) {
  const auto& name = params.get<std::string>("interpolation");
  if (name == "nearest") return Interpolation::kNearest;
  if (name == "nearest-exact") return Interpolation::kNearestExact;
  return name == "bicubic" ? Interpolation::kBicubic : Interpolation::kBilinear;
}

}  // namespace spdld::transform
