// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "source/bytes/file_bytes.h"
#include "source/bytes/file_window.h"
#include "source/tar/pax_header.h"
#include "source/tar/tar_header.h"

namespace spdld::source {

struct TarMember {
  enum class Type { kFile, kDirectory, kHardLink, kSymlink, kDevice, kFifo, kOther };

  std::string name;  // any bytes but zero; no more than a name: it may hold "..", or be empty
  std::string link;  // what a link leads to
  Type type = Type::kFile;
  std::uint64_t header_offset = 0;  // of the first of the headers that belong to it
  std::uint64_t data_offset = 0;
  std::uint64_t size = 0;  // of its data; all of it lies in the file
};

// The members of one tar archive in the order in which they lie there, as GNU tar lists them: V7,
// ustar, GNU and pax. Reads headers alone unless asked for a member's content. One thread. Sparse
// members, those that go on in another volume and whatever is damaged or cut off end the archive
// with an error that names the file, the offset and the member; so do compressed archives, with the
// command to unpack them.
//
// The archive ends at a zero block, or where the file does. What lies behind is not read, also
// behind a zero block that stands alone: so do GNU tar and Python's tarfile.
class TarReader {
 public:
  // Of names, and of the headers that hold longer ones.
  static constexpr std::size_t kMaxName = 4096;
  static constexpr std::uint64_t kMaxExtension = std::uint64_t{1} << 20;

  // `start`: where the headers of a member begin. `file` outlives this.
  explicit TarReader(FileBytes& file, std::uint64_t start = 0)
      : file_(file), window_(file), at_(start) {}

  // Puts the next one into `member`. False: there is none.
  Result<bool> next(TarMember& member);
  // Valid until the next call. kResourceExhausted: there are more than `max_bytes`.
  Result<std::string_view> content(const TarMember& member, std::uint64_t max_bytes);

  // What is no error, but may be no intention either. Complete when next() has said false.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Whether a global header has given a name or size to the members that follow it.
  bool has_global_names() const { return global_.path || global_.size; }

 private:
  // What the headers before a member's own say of it.
  struct Extension {
    bool any = false;
    std::optional<std::string> name;
    std::optional<std::string> link;
    PaxRecords records;
  };

  Status read_extension(const TarHeader& header, Extension& extension);
  Result<std::string> long_name(std::string_view content, std::uint64_t offset) const;
  Status fill(const TarHeader& header, Extension& extension, TarMember& member);
  Result<std::uint64_t> data_size(const TarHeader& header, const PaxRecords& records,
                                  const std::string& name) const;
  // Why what stands at at_ is no header; at the file's start, what it is instead.
  Status no_header(std::string_view block) const;
  Status end_of_file(bool inside_member);
  Result<bool> end_marker();
  Result<std::string_view> bytes(std::uint64_t offset, std::uint64_t size,
                                 const std::string& member);

  Status behind(std::uint64_t offset, const std::string& why) const;
  Status of_member(std::uint64_t offset, const std::string& name, const std::string& why,
                   Code code = Code::kDataLoss) const;

  FileBytes& file_;
  FileWindow window_;
  std::uint64_t at_;  // where the next header begins
  bool ended_ = false;
  PaxRecords global_;
  std::string last_;  // the latest member's name
  bool has_last_ = false;
  std::string content_;  // too large for the window
  std::vector<std::string> warnings_;
};

// The name of the member whose headers begin at `offset`.
Result<std::string> member_name_at(FileBytes& file, std::uint64_t offset);

}  // namespace spdld::source
