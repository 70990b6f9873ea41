// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "source/file/disk.h"
#include "source/item/part_bytes.h"

namespace spdld::source {

// A part of a file that somebody else keeps open. Reads block, nothing is retried, and an error
// names the file. Any thread.
class OpenPart : public PartBytes {
 public:
  // `file` was opened by `disk`; both outlive this. `size`: of the part, or up to the file's end.
  OpenPart(Disk& disk, const OpenFile& file, std::string path, std::uint64_t offset,
           std::uint64_t size);

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  std::optional<ItemStamp> stamp() const override { return stamp_of_fd(file_.fd.get()); }
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override;

 private:
  Disk& disk_;
  const OpenFile& file_;
  const std::string path_;
  const std::uint64_t offset_;
  const std::uint64_t size_;
};

}  // namespace spdld::source
