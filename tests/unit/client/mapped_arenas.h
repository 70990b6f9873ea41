// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <string>

namespace spdld::test {

// Mappings of arenas that this process has as a consumer: shared and not writable. A fake daemon in
// the same process writes to its own.
inline int mapped_arenas() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" r--s ") != std::string::npos && line.find("memfd:") != std::string::npos) {
      ++found;
    }
  }
  return found;
}

}  // namespace spdld::test
