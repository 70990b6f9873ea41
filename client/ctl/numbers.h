// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ctl/cli_fwd.h"

// The numbers of options, read strictly: CLI11 alone takes "-1" for the largest one.
namespace spdld::ctl {

// "1048576", "64KiB", "2 GiB", "1.5MB", as the daemon's configuration has it: KiB is 1024, kB is
// 1000. Nothing for what is no size or no whole number of bytes.
std::optional<std::uint64_t> parse_size(std::string_view text);

CLI::Validator whole_number(std::uint64_t least = 0);
CLI::Validator number_above_zero();
CLI::Validator size_in_bytes();  // leaves the number of bytes

}  // namespace spdld::ctl
