// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/read_some.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "source/bytes/path_error.h"

namespace spdld::source {

ReadSome read_descriptor(int fd, std::string path, std::uint64_t max_bytes, std::stop_token stop) {
  return [fd, path = std::move(path), max_bytes, stop = std::move(stop),
          total = std::uint64_t{0}](std::span<char> into) mutable -> Result<std::size_t> {
    if (stop.stop_requested()) return error(Code::kCancelled, "reading " + path + " was stopped");
    ssize_t count = -1;
    do {
      count = ::read(fd, into.data(), into.size());
    } while (count < 0 && errno == EINTR);
    if (count < 0) return tl::unexpected(path_error(errno, "cannot read", path));
    total += static_cast<std::uint64_t>(count);
    if (total > max_bytes) {
      return error(Code::kResourceExhausted,
                   path + " has more than " + std::to_string(max_bytes) + " bytes; split it");
    }
    return static_cast<std::size_t>(count);
  };
}

}  // namespace spdld::source
