// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace spdld {

// Fills the bytes with what nobody can guess.
void random_bytes(std::span<std::byte> out);

}  // namespace spdld
