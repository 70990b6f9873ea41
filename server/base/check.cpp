// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace spdld::detail {

void check_failed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "spdld: this is a bug in spdld: %s:%d: %s does not hold\n", file, line,
               expression);
  std::abort();
}

}  // namespace spdld::detail
