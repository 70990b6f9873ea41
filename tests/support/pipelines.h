// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/builtin_ops.h"
#include "engine/plan/plan.h"
#include "media/jpeg_scan/seek_indexes.h"
#include "op/call_op.h"
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

// With calls of users' functions.
inline const Registry& ops_with_calls() {
  static const Registry kOps = ops().with(python_op());
  return kOps;
}

// A pipeline from its stages and further keys, over a source that the test brings itself.
inline Result<spec::PipelineSpec> parse(const std::string& stages, const std::string& rest = "",
                                        const Registry& registry = ops()) {
  spec::ParseOptions options;
  options.directory = "/";
  return spec::parse_pipeline("pipeline: test\nsource:\n  files: {root: /data}\nstages:\n" +
                                  stages + (rest.empty() ? "batch: {size: 4}\n" : rest),
                              "test.yaml", registry, options);
}

inline std::vector<source::SourceField> labelled_images() {
  return {{.name = "image"}, {.name = "label", .kind = source::SourceField::Kind::kValue}};
}

inline Result<std::shared_ptr<const engine::Plan>> compile(
    const std::string& stages, const std::string& rest = "",
    const std::vector<source::SourceField>& fields = labelled_images(),
    const Registry& registry = ops()) {
  SPDLD_ASSIGN(spec::PipelineSpec spec, parse(stages, rest, registry));
  return engine::compile(std::move(spec), registry, fields);
}

}  // namespace spdld::testing
