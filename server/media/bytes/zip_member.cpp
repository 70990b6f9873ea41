// SPDX-License-Identifier: Apache-2.0
#include "media/bytes/zip_member.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text/counted.h"
#include "base/text/printable.h"

// The format is PKWARE's APPNOTE.TXT; numbers are little-endian.
namespace spdld::media {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kShownNames = 5;
constexpr std::size_t kShownName = 60;            // of one name
constexpr std::uint32_t kSaturated = 0xFFFFFFFF;  // the number stands in the zip64 extra field

tl::unexpected<Status> broken_npz(const std::string& what) {
  return error(Code::kDataLoss, "is no sound .npz: " + what);
}

// A record of the archive, whose numbers lie at fixed places. The caller has seen that it is whole.
class Record {
 public:
  explicit Record(Bytes bytes) : bytes_(bytes) {}

  std::uint64_t number(std::size_t at, std::size_t bytes) const {
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i > 0; --i)
      value = value << 8 | std::to_integer<std::uint64_t>(bytes_[at + i - 1]);
    return value;
  }
  std::uint16_t u16(std::size_t at) const { return static_cast<std::uint16_t>(number(at, 2)); }
  std::uint32_t u32(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 4)); }
  std::uint64_t u64(std::size_t at) const { return number(at, 8); }

 private:
  Bytes bytes_;
};

// `size` bytes from `at` on, if the archive has them.
std::optional<Bytes> range(Bytes archive, std::uint64_t at, std::uint64_t size) {
  if (at > archive.size() || size > archive.size() - at) return std::nullopt;
  return archive.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
}

struct Directory {
  Bytes bytes;
  std::uint64_t entries = 0;
};

Result<Directory> find_directory(Bytes archive) {
  constexpr std::size_t kEnd = 22;
  constexpr std::size_t kMostComment = 0xFFFF;
  constexpr std::size_t kLocator = 20;
  constexpr std::size_t kEnd64 = 56;
  if (archive.size() < kEnd) return broken_npz("it has no directory, as if it were cut off");
  const std::size_t last = archive.size() - kEnd;
  const std::size_t first = last - std::min(last, kMostComment);
  for (std::size_t at = last + 1; at-- > first;) {
    const Record end(archive.subspan(at, kEnd));
    if (end.u32(0) != 0x06054b50 || at + kEnd + end.u16(20) != archive.size()) continue;
    std::uint64_t entries = end.u16(10);
    std::uint64_t size = end.u32(12);
    std::uint64_t offset = end.u32(16);
    const bool big = entries == 0xFFFF || size == kSaturated || offset == kSaturated;
    if (big && at >= kLocator) {
      const Record locator(archive.subspan(at - kLocator, kLocator));
      if (locator.u32(0) == 0x07064b50) {
        const auto found = range(archive, locator.u64(8), kEnd64);
        if (!found || Record(*found).u32(0) != 0x06064b50)
          return broken_npz("its zip64 directory is not where it should be");
        entries = Record(*found).u64(32);
        size = Record(*found).u64(40);
        offset = Record(*found).u64(48);
      }
    }
    const auto bytes = range(archive, offset, size);
    if (!bytes) return broken_npz("its directory lies outside of it");
    return Directory{.bytes = *bytes, .entries = entries};
  }
  return broken_npz("it has no directory, as if it were cut off");
}

struct DirectoryEntry {
  std::string_view name;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc32 = 0;
  std::uint64_t packed = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // of the local header
};

// Numbers that are too large for their places stand in an extra field, in this order.
bool take_zip64(Bytes extra, DirectoryEntry& entry) {
  while (extra.size() >= 4) {
    const Record head(extra);
    const std::size_t size = head.u16(2);
    if (size > extra.size() - 4) return false;
    if (head.u16(0) != 1) {
      extra = extra.subspan(4 + size);
      continue;
    }
    std::size_t at = 4;
    for (std::uint64_t* const number : {&entry.bytes, &entry.packed, &entry.offset}) {
      if (*number != kSaturated) continue;
      if (at + 8 > 4 + size) return false;
      *number = head.u64(at);
      at += 8;
    }
    return true;
  }
  return true;
}

// The directory's first entry, which is taken off `bytes`.
std::optional<DirectoryEntry> take_entry(Bytes& bytes) {
  constexpr std::size_t kHead = 46;
  if (bytes.size() < kHead) return std::nullopt;
  const Record head(bytes);
  const std::size_t name = head.u16(28);
  const std::size_t extra = head.u16(30);
  const std::size_t comment = head.u16(32);
  if (head.u32(0) != 0x02014b50 || bytes.size() - kHead < name + extra + comment)
    return std::nullopt;
  DirectoryEntry entry{.name = {reinterpret_cast<const char*>(bytes.data()) + kHead, name},
                       .flags = head.u16(8),
                       .method = head.u16(10),
                       .crc32 = head.u32(16),
                       .packed = head.u32(20),
                       .bytes = head.u32(24),
                       .offset = head.u32(42)};
  if (!take_zip64(bytes.subspan(kHead + name, extra), entry)) return std::nullopt;
  bytes = bytes.subspan(kHead + name + extra + comment);
  return entry;
}

Result<ZipMember> member_of(Bytes archive, const DirectoryEntry& entry) {
  constexpr std::size_t kHead = 30;
  const std::string name = "'" + printable(entry.name.substr(0, kShownName)) + "'";
  if ((entry.flags & 1) != 0)
    return error(Code::kDataLoss, "holds " + name + " encrypted: save it without a password");
  if (entry.method != 0 && entry.method != 8)
    return error(Code::kDataLoss, "holds " + name + " packed by method " +
                                      std::to_string(entry.method) +
                                      ": save it by numpy.savez or savez_compressed");
  const auto head = range(archive, entry.offset, kHead);
  if (!head || Record(*head).u32(0) != 0x04034b50)
    return broken_npz(name + " is not where the directory says");
  const std::uint64_t skipped =
      kHead + std::uint64_t{Record(*head).u16(26)} + std::uint64_t{Record(*head).u16(28)};
  const auto stored = range(archive, entry.offset + skipped, entry.packed);
  if (!stored) return broken_npz(name + " reaches beyond its end");
  return ZipMember{
      .stored = *stored, .bytes = entry.bytes, .crc32 = entry.crc32, .deflated = entry.method == 8};
}

}  // namespace

Result<ZipMember> find_array(Bytes archive, std::string_view name) {
  SPDLD_ASSIGN(Directory directory, find_directory(archive));
  std::string names;
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const auto entry = take_entry(directory.bytes);
    if (!entry) return broken_npz("its directory does not hold what it promises");
    std::string_view array = entry->name;
    if (array.ends_with(".npy")) array.remove_suffix(4);
    if (array == name) return member_of(archive, *entry);
    if (++count <= kShownNames)
      names += (count == 1 ? "'" : ", '") + printable(array.substr(0, kShownName)) + "'";
  }
  if (count > kShownNames) names += " and " + counted(count - kShownNames, "more", "more");
  return error(Code::kDataLoss, "has no array '" + printable(name.substr(0, kShownName)) + "'" +
                                    (count == 0 ? "; it is empty" : "; there are " + names));
}

ZipReader::~ZipReader() {
  if (has_stream_) inflateEnd(&stream_);
}

void ZipReader::begin(const ZipMember& member) {
  member_ = member;
  consumed_ = 0;
  read_ = 0;
  crc32_ = 0;
  ended_ = false;
  if (!member.deflated) return;
  if (!has_stream_) {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    has_stream_ = true;
  } else {
    SPDLD_CHECK(inflateReset(&stream_) == Z_OK);
  }
  stream_.next_in = nullptr;
  stream_.avail_in = 0;
}

Result<std::size_t> ZipReader::read(std::span<std::byte> into) {
  const std::size_t wanted =
      static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), member_.bytes - read_));
  std::size_t done = 0;
  if (member_.deflated) {
    SPDLD_TRY(inflate_some(into.first(wanted), done));
  } else {
    done = std::min(wanted, member_.stored.size() - consumed_);
    if (done > 0) std::memcpy(into.data(), member_.stored.data() + consumed_, done);
    consumed_ += done;
  }
  if (done < wanted)
    return broken_npz("the array has less than the " + std::to_string(member_.bytes) +
                      " bytes that the directory says");
  read_ += done;
  if (done > 0)
    crc32_ = static_cast<std::uint32_t>(
        crc32_z(crc32_, reinterpret_cast<const Bytef*>(into.data()), done));
  if (read_ == member_.bytes && crc32_ != member_.crc32)
    return broken_npz("the array's checksum is another one, so it is corrupt");
  return done;
}

Status ZipReader::inflate_some(std::span<std::byte> into, std::size_t& done) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // zlib counts in 32 bits
  while (done < into.size() && !ended_) {
    if (stream_.avail_in == 0) {
      const std::size_t rest = std::min(member_.stored.size() - consumed_, kMost);
      // zlib reads it alone.
      stream_.next_in =
          reinterpret_cast<Bytef*>(const_cast<std::byte*>(member_.stored.data() + consumed_));
      stream_.avail_in = static_cast<uInt>(rest);
      consumed_ += rest;
    }
    const std::size_t room = std::min(into.size() - done, kMost);
    stream_.next_out = reinterpret_cast<Bytef*>(into.data() + done);
    stream_.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    const std::size_t made = room - stream_.avail_out;
    done += made;
    ended_ = code == Z_STREAM_END;
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      return broken_npz("the array's deflated bytes are corrupt").value();
    // Nothing more comes of what there is.
    if (!ended_ && made == 0 && consumed_ == member_.stored.size() && stream_.avail_in == 0)
      return {};
  }
  return {};
}

}  // namespace spdld::media
