// SPDX-License-Identifier: Apache-2.0
#include "source/file/file_part.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "source/bytes/path_error.h"

namespace spdld::source {

FilePart::FilePart(std::shared_ptr<const RangeReader> reader, FileRange range,
                   RangeReader::Opened opened)
    : reader_(std::move(reader)),
      range_(std::move(range)),
      path_(reader_->path_of(range_)),
      file_(std::move(opened.file)),
      size_(opened.size_bytes) {}

std::optional<ItemStamp> FilePart::stamp() const { return stamp_of_fd(file_.fd.get()); }

Result<std::size_t> FilePart::read(std::uint64_t offset, std::span<char> out) {
  if (offset >= size_) return std::size_t{0};
  out = out.first(std::min<std::uint64_t>(out.size(), size_ - offset));
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = reader_->disk_of(range_).read(
        file_, std::as_writable_bytes(out.subspan(done)), range_.offset + offset + done);
    if (count == -EINTR) continue;
    if (count < 0)
      return tl::unexpected(path_error(static_cast<int>(-count), "cannot read", path_));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace spdld::source
