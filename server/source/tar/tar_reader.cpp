// SPDX-License-Identifier: Apache-2.0
#include "source/tar/tar_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text/printable.h"
#include "source/tar/archive_kind.h"

namespace spdld::source {
namespace {

constexpr std::size_t kShownName = 200;
// How far behind an archive's end to look for another one.
constexpr std::size_t kBehindEnd = 65536;

std::string in_quotes(std::string_view name) {
  const bool whole = name.size() <= kShownName;
  return "'" + printable(name.substr(0, kShownName)) + (whole ? "'" : "...'");
}

TarMember::Type member_type(char flag) {
  switch (flag) {
    case '\0':
    case '0':
    case '7': return TarMember::Type::kFile;
    case '1': return TarMember::Type::kHardLink;
    case '2': return TarMember::Type::kSymlink;
    case '3':
    case '4': return TarMember::Type::kDevice;
    case '5':
    case 'D': return TarMember::Type::kDirectory;
    case '6': return TarMember::Type::kFifo;
    default: return TarMember::Type::kOther;
  }
}

// No data follow the headers of these, whatever their size says.
bool is_header_alone(char flag) { return flag >= '1' && flag <= '6'; }

// What is wrong, with the way out.
std::string or_copy_again(std::string_view why) {
  std::string text(why);
  text += "; copy the shard again, or pack it anew";
  return text;
}

std::string cut_off(std::uint64_t size, std::uint64_t left) {
  return or_copy_again("it is cut off: it has " + std::to_string(size) + " bytes, and only " +
                       std::to_string(left) + " follow up to the end of the file");
}

}  // namespace

Status TarReader::behind(std::uint64_t offset, const std::string& why) const {
  return Status(Code::kDataLoss,
                file_.path() + ": at byte " + std::to_string(offset) + ", " +
                    (has_last_ ? "behind member " + in_quotes(last_) : "before its first member") +
                    ": " + why);
}

Status TarReader::of_member(std::uint64_t offset, const std::string& name, const std::string& why,
                            Code code) const {
  return Status(code, file_.path() + ": at byte " + std::to_string(offset) + ", member " +
                          in_quotes(name) + ": " + why);
}

Result<bool> TarReader::next(TarMember& member) {
  if (ended_) return false;
  Extension extension;
  member.header_offset = at_;
  for (;;) {
    SPDLD_ASSIGN(const std::string_view block, window_.view(at_, kTarBlock));
    if (block.empty()) {
      SPDLD_TRY(end_of_file(extension.any));
      return false;
    }
    if (block.size() < kTarBlock) return tl::unexpected(no_header(block));
    const TarHeader header(block);
    switch (header.kind()) {
      case TarHeader::Kind::kOther: return tl::unexpected(no_header(block));
      case TarHeader::Kind::kZero:
        if (extension.any)
          return tl::unexpected(
              behind(at_, or_copy_again("a header that names a member is followed by none")));
        return end_marker();
      case TarHeader::Kind::kHeader: break;
    }
    const char flag = header.type();
    if (flag == 'L' || flag == 'K' || flag == 'x' || flag == 'X' || flag == 'g') {
      SPDLD_TRY(read_extension(header, extension));
      continue;
    }
    SPDLD_TRY(fill(header, extension, member));
    at_ = member.data_offset + tar_padded(member.size);
    last_ = member.name;
    has_last_ = true;
    return true;
  }
}

Status TarReader::read_extension(const TarHeader& header, Extension& extension) {
  const char flag = header.type();
  const std::uint64_t offset = at_;
  const std::optional<std::uint64_t> size = header.size();
  if (!size) return behind(offset, "the size of a long name or pax header is no number");
  if (*size > kMaxExtension)
    return behind(offset, "a long name or pax header has " + std::to_string(*size) +
                              " bytes, and more than " + std::to_string(kMaxExtension) +
                              " are not read; pack the shard anew with shorter names");
  SPDLD_ASSIGN(const std::string_view text, bytes(offset + kTarBlock, *size, header.name()));
  at_ = offset + kTarBlock + tar_padded(*size);
  if (flag == 'L' || flag == 'K') {
    SPDLD_ASSIGN((flag == 'L' ? extension.name : extension.link), long_name(text, offset));
  } else {
    PaxRecords& records = flag == 'g' ? global_ : extension.records;
    if (const Status added = records.add(text); !added.ok())
      return behind(offset, or_copy_again(added.message()));
  }
  // A global header belongs to no member, and may be the last.
  extension.any = extension.any || flag != 'g';
  return {};
}

Result<std::string> TarReader::long_name(std::string_view content, std::uint64_t offset) const {
  const std::size_t end = std::min(content.find('\0'), content.size());
  if (content.find_first_not_of('\0', end) != std::string_view::npos)
    return tl::unexpected(
        behind(offset, or_copy_again("the long name " + in_quotes(content.substr(0, end)) +
                                     " is followed by more than zero bytes")));
  return std::string(content.substr(0, end));
}

Status TarReader::fill(const TarHeader& header, Extension& extension, TarMember& member) {
  PaxRecords& records = extension.records;
  if (!records.path) records.path = global_.path;
  if (!records.link) records.link = global_.link;
  if (!records.size) records.size = global_.size;
  const auto choose = [](std::optional<std::string>& pax, std::optional<std::string>& gnu) {
    return pax && !pax->empty() ? std::move(pax) : std::move(gnu);
  };
  std::optional<std::string> name = choose(records.path, extension.name);
  member.name = name ? std::move(*name) : header.name();
  std::optional<std::string> link = choose(records.link, extension.link);
  member.link = link ? std::move(*link) : std::string(header.link());
  if (member.name.size() > kMaxName)
    return of_member(at_, member.name,
                     "its name has " + std::to_string(member.name.size()) +
                         " bytes, and more than " + std::to_string(kMaxName) +
                         " are not read; pack the shard anew with shorter names");

  const char flag = header.type();
  if (flag == 'S' || records.sparse || global_.sparse)
    return of_member(at_, records.sparse_name.empty() ? member.name : records.sparse_name,
                     "it is a sparse file, whose bytes do not lie in one piece; pack the shard "
                     "anew without 'tar --sparse'");
  if (flag == 'M')
    return of_member(at_, member.name,
                     "it goes on from another volume; pack the shard anew without "
                     "'tar --multi-volume'");
  member.type = member_type(flag);
  // Before there was a type for directories, a slash said it.
  if (member.type == TarMember::Type::kFile && member.name.ends_with('/'))
    member.type = TarMember::Type::kDirectory;
  member.data_offset = at_ + kTarBlock;
  member.size = 0;
  if (!is_header_alone(flag)) {
    SPDLD_ASSIGN(member.size, data_size(header, records, member.name));
  }
  return {};
}

Result<std::uint64_t> TarReader::data_size(const TarHeader& header, const PaxRecords& records,
                                           const std::string& name) const {
  const std::optional<std::uint64_t> size = records.size ? records.size : header.size();
  if (!size) return tl::unexpected(of_member(at_, name, or_copy_again("its size is no number")));
  // The header was read, so that this much is there.
  const std::uint64_t left = file_.size() - at_ - kTarBlock;
  if (*size > left || tar_padded(*size) > left)
    return tl::unexpected(of_member(at_, name, cut_off(*size, left)));
  return *size;
}

Status TarReader::no_header(std::string_view block) const {
  if (at_ == 0) {
    if (const std::string other = other_archive(block, file_.path()); !other.empty())
      return Status(Code::kInvalidArgument, file_.path() + ": " + other);
    return Status(Code::kDataLoss, file_.path() +
                                       ": at byte 0: it is no tar archive, or its first header is "
                                       "damaged; correct the shards' names, or copy it again");
  }
  if (block.size() < kTarBlock)
    return behind(at_, or_copy_again("it is cut off: only " + std::to_string(block.size()) +
                                     " bytes of a header follow"));
  return behind(at_, or_copy_again("what follows is no header: its checksum is wrong"));
}

Status TarReader::end_of_file(bool inside_member) {
  ended_ = true;
  if (file_.size() == 0)
    return Status(Code::kDataLoss,
                  file_.path() + ": it is empty, which no tar archive is; copy or pack it again");
  if (inside_member)
    return behind(at_, or_copy_again("it is cut off: a header that names a member is the last"));
  if (at_ != file_.size())
    return behind(
        at_, or_copy_again("it is cut off: the file ends at byte " + std::to_string(file_.size()) +
                           ", within the block before, or became shorter as it was read"));
  warnings_.push_back(file_.path() + " has no end marker: should it have been cut off behind " +
                      (has_last_ ? "member " + in_quotes(last_) : "its header") +
                      ", that cannot be told");
  return {};
}

// at_: where a zero block is. Two are the rule.
Result<bool> TarReader::end_marker() {
  ended_ = true;
  SPDLD_ASSIGN(std::string_view rest, window_.view(at_, kBehindEnd));
  const std::string_view second = rest.substr(kTarBlock, kTarBlock);
  if (!second.empty() && second.size() < kTarBlock)
    return tl::unexpected(
        behind(at_ + kTarBlock, or_copy_again("it is cut off within its end marker")));
  const bool alone = second.empty() || TarHeader(second).kind() != TarHeader::Kind::kZero;
  const std::size_t more = rest.find_first_not_of('\0', kTarBlock);
  if (more == std::string_view::npos) return false;
  warnings_.push_back(
      file_.path() + ": the archive ends at byte " + std::to_string(at_) +
      (alone ? ", with one zero block in place of two" : "") + ", and what follows from byte " +
      std::to_string(at_ + more) +
      " on is not read, nor by tar; to have it all, unpack it with 'tar --ignore-zeros' and pack "
      "it anew");
  return false;
}

Result<std::string_view> TarReader::bytes(std::uint64_t offset, std::uint64_t size,
                                          const std::string& member) {
  std::string_view held;
  if (size <= FileWindow::kMaxView) {
    SPDLD_ASSIGN(held, window_.view(offset, size));
  } else {
    // No more than the file has.
    content_.resize(offset < file_.size() ? std::min(size, file_.size() - offset) : 0);
    SPDLD_ASSIGN(const std::size_t count, file_.read(offset, content_));
    held = std::string_view(content_).substr(0, count);
  }
  if (held.size() < size)
    return tl::unexpected(of_member(offset, member, cut_off(size, held.size())));
  return held;
}

Result<std::string_view> TarReader::content(const TarMember& member, std::uint64_t max_bytes) {
  if (member.size > max_bytes)
    return tl::unexpected(of_member(member.data_offset, member.name,
                                    "it has " + std::to_string(member.size) +
                                        " bytes, and more than " + std::to_string(max_bytes) +
                                        " are not read when an index is made",
                                    Code::kResourceExhausted));
  return bytes(member.data_offset, member.size, member.name);
}

Result<std::string> member_name_at(FileBytes& file, std::uint64_t offset) {
  TarReader reader(file, offset);
  TarMember member;
  SPDLD_ASSIGN(const bool found, reader.next(member));
  if (!found)
    return error(Code::kDataLoss, file.path() + ": at byte " + std::to_string(offset) +
                                      " there is no member any more; it has changed");
  return std::move(member.name);
}

}  // namespace spdld::source
