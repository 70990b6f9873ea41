// SPDX-License-Identifier: Apache-2.0
#include "base/random_bytes.h"

#include <sys/random.h>

namespace spdld {

void random_bytes(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0) continue;  // EINTR: the only failure there is once the machine is up
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace spdld
