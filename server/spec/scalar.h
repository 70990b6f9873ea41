// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spdld::spec {

// The texts of scalars, read strictly: nothing around the value, no octal, no inf or nan.
std::optional<std::int64_t> parse_integer(std::string_view text);  // "-12"
std::optional<double> parse_number(std::string_view text);         // "1e-3", ".5", "12"
std::optional<bool> parse_bool(std::string_view text);             // true | false, or capitalised
// "1048576", "64KiB", "2 GiB", "1.5MB": bytes; KiB is 1024, kB is 1000. None: no size, or not a
// whole number of bytes, or over 2^63 - 1.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::optional<double> parse_percent(std::string_view text);  // "25%" is 0.25; over 0, up to 100
// 1 to 128 of A-Z a-z 0-9 . _ -, the first of them neither . nor -: no command takes it for an
// option, and no path for a directory.
bool is_name(std::string_view text);
// 1 to 47 of A-Z a-z 0-9 _, the first of them a letter; and what to say where it is none.
bool is_field_name(std::string_view text);
std::string not_a_field_name(std::string_view text);

// The text in quotes, shortened and on one line, for messages.
std::string quote(std::string_view text);

// A number as messages show it: no trailing zeros, integers without a point.
std::string show_number(double number);

}  // namespace spdld::spec
