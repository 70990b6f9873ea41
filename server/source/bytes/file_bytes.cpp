// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/file_bytes.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "source/bytes/path_error.h"

namespace spdld::source {

OpenFileBytes::OpenFileBytes(int fd, std::string path, std::uint64_t size)
    : fd_(fd), path_(std::move(path)), size_(size) {}

Result<std::size_t> OpenFileBytes::read(std::uint64_t offset, std::span<char> out) {
  if (offset >= size_) return std::size_t{0};
  // A file that has grown is read no further than it was when it was opened.
  out = out.first(std::min<std::uint64_t>(out.size(), size_ - offset));
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return tl::unexpected(path_error(errno, "cannot read", path_));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace spdld::source
