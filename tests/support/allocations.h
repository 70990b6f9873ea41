// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdld::testing {

// How often this thread has called operator new. Binaries that link allocations.cpp count; it
// replaces the operators, as TSan's runtime does, too, and is left out there.
int allocations();

}  // namespace spdld::testing
