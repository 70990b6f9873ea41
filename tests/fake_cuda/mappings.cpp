// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/mappings.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>

namespace spdld::fake_cuda {

MappedRange mapped_range(const void* address, std::uint64_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + bytes;
  MappedRange range{.writable = true};
  std::uintptr_t reached = begin;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; reached < end && std::getline(maps, line);) {
    std::uint64_t from = 0, to = 0, offset = 0, inode = 0;
    char rights[5] = "", device[16] = "";
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %15s %" SCNu64, &from,
                    &to, rights, &offset, device, &inode) != 6)
      continue;
    if (to <= reached) continue;
    if (from > reached || rights[0] != 'r') return {};
    range.writable = range.writable && rights[1] == 'w';
    if (inode != 0) {
      range.backing += std::string(device) + ":" + std::to_string(inode) + "+" +
                       std::to_string(offset + (reached - from)) + " ";
    }
    reached = to;
  }
  range.whole = reached >= end;
  return range.whole ? range : MappedRange{};
}

}  // namespace spdld::fake_cuda
