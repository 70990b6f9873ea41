// SPDX-License-Identifier: Apache-2.0
#include "source/file/open_part.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "source/bytes/path_error.h"

namespace spdld::source {

OpenPart::OpenPart(Disk& disk, const OpenFile& file, std::string path, std::uint64_t offset,
                   std::uint64_t size)
    : disk_(disk),
      file_(file),
      path_(std::move(path)),
      offset_(std::min(offset, file.size_bytes)),
      size_(std::min(size, file.size_bytes - offset_)) {}

Result<std::size_t> OpenPart::read(std::uint64_t offset, std::span<char> out) {
  if (offset >= size_) return std::size_t{0};
  out = out.first(std::min<std::uint64_t>(out.size(), size_ - offset));
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        disk_.read(file_, std::as_writable_bytes(out.subspan(done)), offset_ + offset + done);
    if (count == -EINTR) continue;
    if (count < 0)
      return tl::unexpected(path_error(static_cast<int>(-count), "cannot read", path_));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace spdld::source
