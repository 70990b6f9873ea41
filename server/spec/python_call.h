// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spdld::spec {

// The arguments of a call in Python as YAML writes them: of "RandomResizedCrop(224, scale=(0.5,
// 1))" they are {"", "224"} and {"scale", "[0.5, 1]"}. Those that are None are left out. Nothing:
// it is no call, or a very long one, or an argument is more than numbers, names, texts, and lists
// of these.
std::optional<std::vector<std::pair<std::string, std::string>>> python_arguments(
    std::string_view call);

}  // namespace spdld::spec
