// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spdld::source {

// Appends what the braces of `pattern` stand for, in their order, as a shell and the WebDataset
// package expand them:
//   {a,b}       each of these, which may hold braces in turn
//   {000..146}  the numbers from one to the other, up or down; as wide as the wider one where one
//               begins with a zero; {0..10..5}: every fifth
//   {a..e}      the letters from one to the other
//   \x          the character x itself; stays as it is
// Braces around anything else stand for themselves, as does what is between brackets.
// kResourceExhausted: `out` would have more than `max`; kInvalidArgument: a brace is not closed.
Status expand_braces(std::string_view pattern, std::size_t max, std::vector<std::string>& out);

// Where in `pattern` the character that begins at `i` ends: '\x' and a set in brackets are one. An
// open bracket stands for itself.
std::size_t pattern_atom_end(std::string_view pattern, std::size_t i);

}  // namespace spdld::source
