// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "source/bytes/file_bytes.h"

namespace spdld::source {

// A file read at rising places, in few system calls: places that lie close together are read in one
// piece with what is between them, in ever larger pieces, while those far apart cost a small read
// each. One thread.
class FileWindow {
 public:
  // What one view may hold.
  static constexpr std::size_t kMaxView = std::size_t{256} << 10;

  explicit FileWindow(FileBytes& file) : file_(file) {}

  // `size` bytes at `offset`, fewer only where the file ends; size <= kMaxView. Valid until the
  // next call.
  Result<std::string_view> view(std::uint64_t offset, std::size_t size);

 private:
  FileBytes& file_;
  std::uint64_t begin_ = 0;  // where in the file buffer_ lies
  std::size_t held_ = 0;
  std::size_t piece_ = 0;  // bytes of the latest read
  std::vector<char> buffer_;
};

}  // namespace spdld::source
