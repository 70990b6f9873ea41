// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/status.h"

namespace spdld::source {

// Removes the files of `directory`, and none below it, that `is_used` does not want to keep and
// that were written `grace` ago. A directory that is not there has none.
Status remove_unused_files(const std::string& directory,
                           const std::function<bool(const std::filesystem::path& name)>& is_used,
                           std::filesystem::file_time_type::duration grace);

}  // namespace spdld::source
