// SPDX-License-Identifier: Apache-2.0
#include "source/digest_text.h"

#include <xxhash.h>

#include <cstdio>

namespace spdld::source {

std::string digest_text(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return hex;
}

}  // namespace spdld::source
