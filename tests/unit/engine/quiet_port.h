// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "engine/stream_port.h"

namespace spdld::engine {

// For rows that are made by hand: has no batches of its own, and lets every item be replaced.
class QuietPort : public StreamPort {
 public:
  std::optional<BatchOrder> open() override { return std::nullopt; }
  void commit(const BatchOrder&) override {}
  void abandon(const BatchOrder&) override {}
  Status may_replace(const SampleFailure&) override { return {}; }
  void fail(const StreamFailure&) override {}
};

// Remembers which items were replaced.
class NotingPort final : public QuietPort {
 public:
  Status may_replace(const SampleFailure& failure) override {
    failures.push_back(failure);
    return {};
  }

  std::vector<SampleFailure> failures;
};

}  // namespace spdld::engine
