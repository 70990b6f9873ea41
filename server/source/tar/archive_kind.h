// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace spdld::source {

// Of a file named `path` that begins with `head` and is no tar archive: what it is instead and the
// command that makes a tar of it. Empty: that is not known. 6 bytes are enough.
std::string other_archive(std::string_view head, const std::string& path);

// A command line that packs the shard anew beside itself, with the members of each sample side by
// side.
std::string repack_command(std::string_view path);

}  // namespace spdld::source
