// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/mappings.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <utility>

namespace spdld::fake_cuda {

Mappings::Mappings() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Part part;
    std::uint64_t inode = 0;
    char rights[5] = "", device[16] = "";
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %15s %" SCNu64,
                    &part.begin, &part.end, rights, &part.offset, device, &inode) != 6)
      continue;
    part.readable = rights[0] == 'r';
    part.writable = rights[1] == 'w';
    if (inode != 0) part.file = std::string(device) + ":" + std::to_string(inode);
    parts_.push_back(std::move(part));
  }
}

MappedRange Mappings::range(const void* address, std::uint64_t bytes) const {
  std::uint64_t reached = reinterpret_cast<std::uintptr_t>(address);
  const std::uint64_t end = reached + bytes;
  MappedRange range{.whole = true, .writable = true};
  auto part = std::partition_point(parts_.begin(), parts_.end(),
                                   [&](const Part& before) { return before.end <= reached; });
  for (; reached < end; ++part) {
    if (part == parts_.end() || part->begin > reached || !part->readable) return {};
    range.writable = range.writable && part->writable;
    if (!part->file.empty()) {
      range.backing +=
          part->file + "+" + std::to_string(part->offset + (reached - part->begin)) + " ";
    }
    reached = part->end;
  }
  return range;
}

}  // namespace spdld::fake_cuda
