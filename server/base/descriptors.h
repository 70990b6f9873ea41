// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spdld {

// Counts a system call of this process that failed with `err`, if it is for want of a file
// descriptor (EMFILE, ENFILE). errno_status() does it for all errors that pass through it.
void note_descriptor_shortage(int err);

// How often that was so far. Who keeps descriptors that can be done without looks at it.
std::uint64_t descriptor_shortages();

}  // namespace spdld
