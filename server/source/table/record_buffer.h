// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "source/bytes/read_some.h"

namespace spdld::source {

// A text file, read record by record in bounded memory. One thread.
class RecordBuffer {
 public:
  static constexpr std::size_t kMaxRecord = std::size_t{16} << 20;

  // `first_read`: the size of the first read, for tests; the buffer grows with the records.
  explicit RecordBuffer(ReadSome read, std::size_t first_read = std::size_t{1} << 20);

  // What has been read from the first byte of the record on; valid until the next call.
  std::string_view view() const { return std::string_view(bytes_.data() + begin_, end_ - begin_); }
  // Whether view() has kMaxRecord bytes: a record that does not end within it is too long.
  bool full() const { return end_ - begin_ >= kMaxRecord; }
  // Reads more behind view(), which is not full, and at least doubles it. False: there is no more.
  Result<bool> more();
  // Leaves out the first bytes of view(), among which so many line feeds are.
  void pop(std::size_t bytes, std::uint64_t lines);
  // On which line view() begins.
  std::uint64_t line() const { return line_; }
  // Leaves out a byte order mark; asked once, before all else. kInvalidArgument: the file is no
  // UTF-8, but UTF-16.
  Status skip_mark();

 private:
  ReadSome read_;
  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t line_ = 1;
  bool ended_ = false;
};

}  // namespace spdld::source
