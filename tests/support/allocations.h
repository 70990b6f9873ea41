// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spdld::testing {

// How often this thread has called operator new. Binaries that link allocations.cpp count; it
// replaces the operators, as TSan's runtime does, too, and is left out there.
int allocations();

// The bytes that this thread has from operator new while this lives, beyond those that it had
// before; and the most of them at once. One at a time.
class HeldBytes {
 public:
  HeldBytes();
  std::int64_t now() const;
  std::int64_t most() const;

 private:
  std::int64_t before_;
};

}  // namespace spdld::testing
