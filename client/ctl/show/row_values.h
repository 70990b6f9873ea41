// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ctl/daemon.h"

namespace spdld::ctl {

// The values of each row, where they are few: a number or truth, or a list of them.
struct ValueField {
  static constexpr std::size_t kMostValues = 16;

  std::string name;
  std::vector<nlohmann::ordered_json> rows;
};
// Of the dense fields, in their order. Throws Failure where what came contradicts itself, here and
// below.
std::vector<ValueField> values_of(const Preview& preview);

// The digest of each row, as of `consume --digest --per-row` (ctl/digest.h).
std::vector<std::string> digests_of(const Preview& preview);
// The same of each field alone: [field][row].
std::vector<std::vector<std::string>> field_digests_of(const Preview& preview);

}  // namespace spdld::ctl
