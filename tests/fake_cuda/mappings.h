// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spdld::fake_cuda {

// What a range of this process's addresses is.
struct MappedRange {
  bool whole = false;     // all of it is mapped and can be read
  bool writable = false;  // all of it
  // The file and the offset that each part of it maps: a range that is mapped anew has others,
  // unless both times it is anonymous.
  std::string backing = {};
};

// All that this process has mapped, as /proc/self/maps told it once.
class Mappings {
 public:
  Mappings();

  MappedRange range(const void* address, std::uint64_t bytes) const;

 private:
  struct Part {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool readable = false;
    bool writable = false;
    std::uint64_t offset = 0;  // in the file
    std::string file = {};     // its device and inode; empty: anonymous
  };
  std::vector<Part> parts_;  // by address
};

}  // namespace spdld::fake_cuda
