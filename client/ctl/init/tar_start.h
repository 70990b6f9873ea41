// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spdld::ctl {

// A regular file in a tar archive.
struct TarFile {
  std::string name;
  std::string head;          // what it begins with, up to 64 bytes
  std::uint64_t offset = 0;  // of its content in the archive
  std::uint64_t size = 0;
};

// What a tar archive begins with.
struct TarStart {
  std::vector<TarFile> files;
  std::uint64_t bytes = 0;  // that were passed on the way
  bool whole = false;       // there is no more in it
};

// The first `most` regular files of an archive, V7, ustar, GNU or pax. Reads headers, and of what
// lies between them no more than a head. Throws Failure (kWrongUsage), which names the file: it
// cannot be read, is no tar archive, is compressed, or is damaged or cut off before that many files
// have come.
TarStart read_tar_start(const std::string& path, std::size_t most);
// All that such a file holds; nothing if that is more than `most` bytes.
std::string read_tar_file(const std::string& path, const TarFile& file, std::size_t most);

}  // namespace spdld::ctl
