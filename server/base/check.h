// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdld::detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression);
}  // namespace spdld::detail

// For our own bugs only: what comes from outside (media, YAML, frames, RPCs) never trips one.
#define SPDLD_CHECK(expression)                                       \
  do {                                                                \
    if (!(expression)) [[unlikely]]                                   \
      ::spdld::detail::check_failed(__FILE__, __LINE__, #expression); \
  } while (false)
