// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "op/registry.h"
#include "spec/parse.h"

namespace spdld::spec {

// Ops with one parameter of every type, and one rule that no table can say.
inline Registry fake_registry() {
  const auto fetch = [](const Params&) -> Result<std::unique_ptr<Op>> {
    return std::make_unique<FetchOp>();
  };
  const auto scale = [](const Params& params) -> Result<std::unique_ptr<Op>> {
    const auto& range = params.get<std::vector<double>>("range");
    if (range[0] > range[1])
      return error(Code::kInvalidArgument, "scale: range: least is over most");
    return std::make_unique<FetchOp>();
  };
  return Registry({
      {.name = "fetch", .doc = "Brings the bytes.", .params = {}, .make = fetch},
      {.name = "resize",
       .doc = "Resizes.",
       .params = {{.name = "size",
                   .type = ParamType::kIntList,
                   .doc = "height and width",
                   .min = 1,
                   .max = 4096,
                   .min_items = 1,
                   .max_items = 2,
                   .scalar_ok = true},
                  {.name = "interpolation",
                   .type = ParamType::kString,
                   .doc = "how",
                   .default_value = std::string("bilinear"),
                   .choices = {"nearest", "bilinear"}},
                  {.name = "max_size",
                   .type = ParamType::kInt,
                   .doc = "of the longer side",
                   .min = 1,
                   .nullable = true},
                  {.name = "sizes",
                   .type = ParamType::kString,
                   .doc = "a new field that tells the sizes before",
                   .new_field = true,
                   .nullable = true},
                  {.name = "antialias",
                   .type = ParamType::kBool,
                   .doc = "whether to",
                   .default_value = true}},
       .make = fetch},
      {.name = "scale",
       .doc = "Scales.",
       .params = {{.name = "range",
                   .type = ParamType::kFloatList,
                   .doc = "least and most",
                   .default_value = std::vector<double>{0.5, 1.0},
                   .min = 0,
                   .min_items = 2,
                   .max_items = 2},
                  {.name = "p",
                   .type = ParamType::kFloat,
                   .doc = "probability",
                   .default_value = 0.5,
                   .min = 0,
                   .max = 1}},
       .make = scale},
  });
}

inline constexpr const char* kMinimal =
    "pipeline: p\n"
    "source: {files: {root: /data}}\n"
    "stages: [fetch]\n"
    "batch: {size: 8}\n";

inline Result<PipelineSpec> parse(std::string_view text, ParseOptions options = {}) {
  if (options.directory.empty()) options.directory = "/conf";
  return parse_pipeline(text, "p.yaml", fake_registry(), options);
}

// The message of the error that the text gives, or "" if it gives none.
inline std::string parse_error(std::string_view text, ParseOptions options = {}) {
  const Result<PipelineSpec> spec = parse(text, std::move(options));
  return spec ? "" : spec.error().message();
}

}  // namespace spdld::spec
