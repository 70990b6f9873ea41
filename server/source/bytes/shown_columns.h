// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// How messages show what comes from a file: in one line, however long or many that is.
namespace spdld::source {

// In quotes, cut after 60 bytes.
std::string shown_text(std::string_view text);

// "; did you mean 'dog'?" for the nearest of the names, or "" if none is near, or they are too many
// to look through them.
std::string nearest_name(std::string_view wrong, const std::vector<std::string>& there);

// "column 'heigth'; did you mean 'height'?", or else the first names that are there. `noun`: what
// they are of.
std::string missing_name(std::string_view noun, std::string_view wrong,
                         const std::vector<std::string>& there);
// The same of all columns of a table, which may be another library's: then what to write for it.
std::string missing_table_column(std::string_view wrong, const std::vector<std::string>& there);

}  // namespace spdld::source
