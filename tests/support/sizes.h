// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spdld::test {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

}  // namespace spdld::test
