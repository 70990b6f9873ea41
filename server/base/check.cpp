// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdlib>
#include <string>

#include "base/log.h"

namespace spdld::detail {

void check_failed(const char* file, int line, const char* expression) {
  log::last_words("spdld: this is a bug in spdld: " + std::string(file) + ":" +
                  std::to_string(line) + ": " + expression + " does not hold");
  std::abort();
}

}  // namespace spdld::detail
