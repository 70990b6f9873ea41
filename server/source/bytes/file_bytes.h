// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace spdld::source {

// The bytes of one file of a fixed size, as readers of archives ask for them: OpenFileBytes reads
// an open file, and tests have some in memory. Any thread.
class FileBytes {
 public:
  virtual ~FileBytes() = default;

  virtual const std::string& path() const = 0;  // for messages
  virtual std::uint64_t size() const = 0;
  // How many bytes from `offset` on it has put into `out`: fewer than that holds only where the
  // file ends. May block. An error names the file.
  virtual Result<std::size_t> read(std::uint64_t offset, std::span<char> out) = 0;
};

// A regular file, which its owner keeps open for as long as this is.
class OpenFileBytes final : public FileBytes {
 public:
  OpenFileBytes(int fd, std::string path, std::uint64_t size);

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override;

 private:
  const int fd_;
  const std::string path_;
  const std::uint64_t size_;
};

}  // namespace spdld::source
