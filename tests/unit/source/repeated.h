// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdld::source {

inline std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace spdld::source
