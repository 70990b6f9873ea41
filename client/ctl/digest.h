// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdld/batch.h>

#include <cstdint>
#include <span>
#include <string>

// XXH3-128 over what a batch holds, as 32 hexadecimal digits (XXH128's canonical form): over every
// field but the meta ones, in the order of their names, each
//   dense   the values
//   ragged  the values, then the element offsets, then the shapes
//   bytes   the values, then the byte offsets
// with the integers as the arena holds them (int64, little-endian).
namespace spdld::ctl {

std::string batch_digest(std::span<const TensorView> fields, std::uint64_t rows);

// The same of one row, independent of the batch it came in: variable fields give, instead of
// offsets, the row's number of values (int64).
std::string row_digest(std::span<const TensorView> fields, std::uint64_t rows, std::uint64_t row);

}  // namespace spdld::ctl
