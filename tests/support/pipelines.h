// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/builtin_ops.h"
#include "engine/plan/plan.h"
#include "media/jpeg_scan/seek_indexes.h"
#include "spec/parse.h"

namespace spdld::testing {

inline const std::shared_ptr<media::SeekIndexes>& indexes() {
  static const auto kIndexes = std::make_shared<media::SeekIndexes>(std::uint64_t{64} << 20);
  return kIndexes;
}

// All ops, as a daemon has them.
inline const Registry& ops() {
  static const Registry kOps = engine::builtin_ops(indexes());
  return kOps;
}

// A pipeline from its stages and further keys, over a source that the test brings itself.
inline Result<spec::PipelineSpec> parse(const std::string& stages, const std::string& rest = "") {
  spec::ParseOptions options;
  options.directory = "/";
  return spec::parse_pipeline("pipeline: test\nsource:\n  files: {root: /data}\nstages:\n" +
                                  stages + (rest.empty() ? "batch: {size: 4}\n" : rest),
                              "test.yaml", ops(), options);
}

inline std::vector<source::SourceField> labelled_images() {
  return {{.name = "image"}, {.name = "label", .kind = source::SourceField::Kind::kValue}};
}

inline Result<std::shared_ptr<const engine::Plan>> compile(
    const std::string& stages, const std::string& rest = "",
    const std::vector<source::SourceField>& fields = labelled_images()) {
  SPDLD_ASSIGN(spec::PipelineSpec spec, parse(stages, rest));
  return engine::compile(std::move(spec), ops(), fields);
}

}  // namespace spdld::testing
