// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <utility>

namespace spdld::test {

// What the call throws. The test fails if that is nothing, or no E.
template <typename E, typename F>
E thrown(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const E& error) {
    return error;
  }
  throw std::logic_error("threw nothing");
}

}  // namespace spdld::test
