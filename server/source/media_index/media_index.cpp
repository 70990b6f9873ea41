// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/media_index.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/failpoint.h"
#include "source/bytes/binary.h"
#include "source/bytes/digest_text.h"
#include "source/bytes/whole_file.h"

namespace spdld::source {
namespace {

constexpr std::string_view kMediaMagic = "SPDLMED3";
constexpr std::size_t kLeastEntry = 46;
constexpr std::size_t kLeastCodec = sizeof(std::uint64_t) + sizeof(std::uint32_t);

std::vector<MediaEntry> by_key(std::vector<MediaEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const MediaEntry& a, const MediaEntry& b) { return a.key < b.key; });
  return entries;
}

std::string digest_of(const std::vector<MediaEntry>& entries) {
  DigestBuilder digest;
  for (const MediaEntry& entry : entries) {
    const std::uint64_t head[] = {entry.key, static_cast<std::uint64_t>(entry.code),
                                  entry.code == Code::kOk ? entry.text.size() : 0};
    digest.add({reinterpret_cast<const char*>(head), sizeof head});
    if (entry.code == Code::kOk) digest.add(entry.text);
  }
  return digest.finish();
}

// The numbers of the codecs that these entries name.
std::set<std::uint64_t> codecs_of(const std::vector<const MediaEntry*>& entries,
                                  const CodecPool& codecs) {
  std::set<std::uint64_t> numbers;
  for (const MediaEntry* const entry : entries) {
    if (entry->code != Code::kOk) continue;
    const std::optional<MediaRecord> record = read_media_record(entry->text, codecs);
    if (!record) continue;  // a damaged one is found where it is used
    for (const StreamRecord& stream : record->streams) numbers.insert(stream.codec);
  }
  return numbers;
}

bool is_code(std::uint8_t value) {
  const auto code = static_cast<Code>(value);
  return code == Code::kOk || code == Code::kDataLoss || code == Code::kInvalidArgument ||
         code == Code::kResourceExhausted;
}

}  // namespace

MediaIndex::MediaIndex(std::vector<MediaEntry> entries, std::shared_ptr<const CodecPool> codecs)
    : entries_(by_key(std::move(entries))),
      codecs_(std::move(codecs)),
      digest_(digest_of(entries_)) {}

const MediaEntry* MediaIndex::find(std::uint64_t key) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), key,
      [](const MediaEntry& entry, std::uint64_t wanted) { return entry.key < wanted; });
  return found == entries_.end() || found->key != key ? nullptr : &*found;
}

std::uint64_t MediaIndex::bytes() const {
  std::uint64_t bytes = entries_.size() * sizeof(MediaEntry);
  for (const MediaEntry& entry : entries_) bytes += entry.text.size();
  return bytes;
}

Status save_media_entries(const std::string& path, const std::string& what,
                          const std::vector<const MediaEntry*>& entries, const CodecPool& codecs) {
  BinaryWriter out;
  std::size_t bytes = 4096;
  for (const MediaEntry* const entry : entries) bytes += kLeastEntry + entry->text.size();
  out.reserve(bytes);
  out.raw(kMediaMagic);
  out.string(what);
  const std::set<std::uint64_t> numbers = codecs_of(entries, codecs);
  out.number<std::uint64_t>(numbers.size());
  for (const std::uint64_t number : numbers) {
    out.number(number);
    out.string(codecs.text(number));
  }
  out.number<std::uint64_t>(entries.size());
  for (const MediaEntry* const entry : entries) {
    out.number(entry->key);
    out.number(entry->stamp.inode);
    out.number(entry->stamp.size_bytes);
    out.number(entry->stamp.mtime_ns);
    out.number(entry->stamp.ctime_ns);
    out.number(static_cast<std::uint8_t>(entry->settled ? 1 : 0));
    out.number(static_cast<std::uint8_t>(entry->code));
    out.string(entry->text);
  }
  out.number<std::uint64_t>(XXH3_64bits(out.text().data(), out.text().size()));
  SPDLD_FAILPOINT_STATUS("source.listing.write");
  return write_whole_file(path, out.text());
}

Result<std::vector<MediaEntry>> load_media_entries(const std::string& path, const std::string* what,
                                                   CodecPool& codecs) {
  SPDLD_ASSIGN(std::string read, read_whole_file(path));
  const auto whole = std::make_shared<const std::string>(std::move(read));
  const std::string_view text = *whole;
  const auto refuse = [&path](const char* why) {
    return error(Code::kDataLoss, path + " is no index of these media files: " + why);
  };
  if (text.size() < kMediaMagic.size() + sizeof(std::uint64_t) || !text.starts_with(kMediaMagic))
    return refuse("it is of another version");
  const std::size_t end = text.size() - sizeof(std::uint64_t);
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, text.data() + end, sizeof checksum);
  if (checksum != XXH3_64bits(text.data(), end)) return refuse("it is damaged");

  BinaryReader in(text.substr(kMediaMagic.size(), end - kMediaMagic.size()));
  if (const std::string kept = in.string(); what != nullptr && kept != *what)
    return error(Code::kFailedPrecondition, path + " is an index of other media files");
  for (std::size_t n = in.count(kLeastCodec); n > 0; --n) {
    const auto number = in.number<std::uint64_t>();
    if (!codecs.add_text(number, in.raw(in.number<std::uint32_t>())))
      return refuse("it is damaged");
  }
  std::vector<MediaEntry> entries(in.count(kLeastEntry));
  for (MediaEntry& entry : entries) {
    entry.key = in.number<std::uint64_t>();
    entry.stamp.inode = in.number<std::uint64_t>();
    entry.stamp.size_bytes = in.number<std::uint64_t>();
    entry.stamp.mtime_ns = in.number<std::int64_t>();
    entry.stamp.ctime_ns = in.number<std::int64_t>();
    entry.settled = in.number<std::uint8_t>() != 0;
    const auto code = in.number<std::uint8_t>();
    if (!is_code(code)) return refuse("it is damaged");
    entry.code = static_cast<Code>(code);
    entry.text = in.raw(in.number<std::uint32_t>());
    entry.owner = whole;
  }
  if (!in.ok() || in.left() != 0) return refuse("it is damaged");
  return entries;
}

}  // namespace spdld::source
