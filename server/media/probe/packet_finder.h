// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "media/bytes/byte_reader.h"

namespace spdld::media {

// Finds where in the file the bytes of a packet stand, by comparing them: a demuxer may tell the
// begin of the block around them, or have put them together from several places. Reads ahead, as
// packets are asked for in the order of the file.
class PacketFinder {
 public:
  explicit PacketFinder(ByteReader& reader) : reader_(reader) {}

  // The offset at which exactly these bytes stand, at `near` or little behind it; empty: they do
  // not. An error is the reader's.
  Result<std::optional<std::uint64_t>> find(std::uint64_t near, std::span<const std::byte> bytes);

 private:
  // The `wanted` bytes of the file from `offset` on, or fewer where it ends.
  Result<std::span<const std::byte>> window(std::uint64_t offset, std::size_t wanted);

  ByteReader& reader_;
  std::uint64_t begin_ = 0;  // of bytes_ in the file
  std::vector<std::byte> bytes_;
  std::size_t filled_ = 0;
};

}  // namespace spdld::media
