// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spdld {

// What messages say of a name that is not known.

// "; did you mean 'size'?" for the known name nearest to `name`, or "" if none is near enough.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);
// The same where a name of much the same letters means another thing: for slips of the keyboard.
std::string did_you_slip(std::string_view name, const std::vector<std::string>& known);

// did_you_mean(), or else the whole list: "; there are: size, last".
std::string hint(std::string_view wrong, const std::vector<std::string>& known);

// "a, b, c".
std::string listed_names(const std::vector<std::string>& words);

}  // namespace spdld
