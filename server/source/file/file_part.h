// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "source/file/range_reader.h"
#include "source/item/part_bytes.h"

namespace spdld::source {

// One part of an item: a range of a file that stays open for whoever reads in it. Owned by its
// reader, whose threads may call it at once; it may outlast the fetcher that opened it. Reads
// block, nothing is retried, and an error names the file.
class FilePart final : public PartBytes {
 public:
  FilePart(std::shared_ptr<const RangeReader> reader, FileRange range, RangeReader::Opened opened);

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  std::optional<ItemStamp> stamp() const override;
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override;

 private:
  const std::shared_ptr<const RangeReader> reader_;
  const FileRange range_;
  const std::string path_;
  const OpenFile file_;
  const std::uint64_t size_;
};

}  // namespace spdld::source
