// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace spdld::media {

// The bytes of one media file of a fixed size, as a demuxer asks for them. Used by one thread at a
// time.
class ByteReader {
 public:
  virtual ~ByteReader() = default;

  virtual std::uint64_t size() const = 0;
  // How many bytes from `offset` on it has put into `out`: fewer than that holds only where the
  // file ends. May block.
  virtual Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) = 0;
};

// A file that lies in memory, which must outlive this.
class MemoryReader final : public ByteReader {
 public:
  explicit MemoryReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t size() const override { return bytes_.size(); }
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t count = std::min<std::size_t>(out.size(), bytes_.size() - offset);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), count, out.begin());
    return count;
  }

 private:
  const std::span<const std::byte> bytes_;
};

}  // namespace spdld::media
