// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/check.h"
#include "op/row_call.h"

namespace spdld::engine {

// Of plans without calls.
struct NoCalls final : CallSink {
  void called(std::uint64_t, Status) override { SPDLD_CHECK(false); }
};

}  // namespace spdld::engine
