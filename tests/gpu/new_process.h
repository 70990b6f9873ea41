// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/gpu/facts.h"

// For tests that start the driver in a way of their own, or must not have started it: the statement
// runs in a new process, and ends it with REQUIRE where something does not hold. The test that it
// is in begins anew there, so nothing before it may start the driver.
#define HOLDS_IN_A_NEW_PROCESS(statement) \
  EXPECT_EXIT(                            \
      {                                   \
        statement;                        \
        std::_Exit(0);                    \
      },                                  \
      ::testing::ExitedWithCode(0), "")

#define REQUIRE(holds)                                            \
  do {                                                            \
    if (!(holds)) {                                               \
      std::fprintf(stderr, "line %d: not so: " #holds, __LINE__); \
      std::_Exit(1);                                              \
    }                                                             \
  } while (false)

namespace spdld::cuda {

// Functions by their symbols, before cuInit.
template <typename Function>
Function symbol(const char* name) {
  return reinterpret_cast<Function>(find_symbol(name));
}

inline CUresult init() { return symbol<PFN_cuInit_v2000>("cuInit")(0); }

}  // namespace spdld::cuda
