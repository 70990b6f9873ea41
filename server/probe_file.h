// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace spdld {

// What a file of video or sound holds, as `spdlctl probe` shows it, and which decoder serves each
// of its streams. Read with the rights of this process, and with no daemon.
Result<nlohmann::ordered_json> probe_file(const std::string& path);

}  // namespace spdld
