// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/field_task.h"

namespace spdld::engine {

// For what is made without a row: it has nothing, and is dropped when a test says so.
class NoSample final : public SampleInput {
 public:
  std::span<const std::byte> part(std::size_t) const override { return {}; }
  Value value(std::size_t) const override { return {}; }
  void set_value(std::size_t, const Value&) override {}
};

}  // namespace spdld::engine
