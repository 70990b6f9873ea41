// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "source/bytes/file_bytes.h"

namespace spdld::source {

// A file in memory that counts what is asked of it. Where nothing was put, it holds zeros, so that
// it may be larger than the memory.
class MemoryFile final : public FileBytes {
 public:
  explicit MemoryFile(std::string bytes) : size_(bytes.size()) { pieces_[0] = std::move(bytes); }
  explicit MemoryFile(std::uint64_t size) : size_(size) {}

  void put(std::uint64_t offset, std::string bytes) { pieces_[offset] = std::move(bytes); }
  // From now on reads find the file's end there, as if another had cut it.
  void shrink(std::uint64_t size) { held_ = size; }
  // From now on reads fail.
  void fail(Status status) { failure_ = std::move(status); }

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override {
    ++reads;
    if (!failure_.ok()) return tl::unexpected(failure_);
    const std::uint64_t end = std::min(size_, held_);
    const std::uint64_t count =
        offset < end ? std::min<std::uint64_t>(out.size(), end - offset) : 0;
    bytes_read += count;
    largest_read = std::max<std::uint64_t>(largest_read, out.size());
    std::fill_n(out.begin(), count, '\0');
    for (const auto& [at, bytes] : pieces_) {
      const std::uint64_t from = std::max(at, offset);
      const std::uint64_t to = std::min(at + bytes.size(), offset + count);
      if (from < to) bytes.copy(out.data() + (from - offset), to - from, from - at);
    }
    return count;
  }

  std::uint64_t reads = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t largest_read = 0;

 private:
  const std::string path_ = "/data/train-000.tar";
  const std::uint64_t size_;
  std::uint64_t held_ = UINT64_MAX;
  Status failure_;
  std::map<std::uint64_t, std::string> pieces_;
};

}  // namespace spdld::source
