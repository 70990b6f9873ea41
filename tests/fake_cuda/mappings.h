// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace spdld::fake_cuda {

// What a range of this process's addresses is, as /proc/self/maps tells it.
struct MappedRange {
  bool whole = false;     // all of it is mapped and can be read
  bool writable = false;  // all of it
  // The file and the offset that each part of it maps: a range that is mapped anew has others,
  // unless both times it is anonymous.
  std::string backing = {};
};

MappedRange mapped_range(const void* address, std::uint64_t bytes);

}  // namespace spdld::fake_cuda
