// SPDX-License-Identifier: Apache-2.0
#include "source/tar/shard_index.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "source/bytes/varint.h"
#include "source/tar/tar_header.h"

// A sample in blob_, all of it varints, distances in blocks of a tar:
//   from the end of the sample before, or in the first of a block from the file's beginning, to the
//     headers of its first member
//   for each part: 0 if the sample lacks it, else its size + 1, and
//     from the end of the part before, or from the sample's headers, to its data: zigzag, since
//     parts stand in the order of fields, not of members
namespace spdld::source {
namespace {

// Reads samples one after the other.
class SampleReader {
 public:
  explicit SampleReader(std::string_view blob) : left_(blob) {}

  // False: what is there is no sample of a file of `file_size` bytes.
  bool next(bool first_of_block, std::span<TarPart> parts, std::uint64_t file_size) {
    const std::uint64_t blocks = file_size / kTarBlock + 1;
    std::uint64_t gap = 0;
    if (!take_varint(left_, gap) || gap > blocks) return false;
    header_offset_ = (first_of_block ? 0 : end_) + gap * kTarBlock;
    if (header_offset_ > file_size) return false;
    end_ = header_offset_;
    std::uint64_t before = header_offset_;
    for (TarPart& part : parts) {
      part = {};
      std::uint64_t size = 0;
      if (!take_varint(left_, size)) return false;
      if (size == 0) continue;
      part.present = true;
      part.size = size - 1;
      std::uint64_t distance = 0;
      if (!take_varint(left_, distance) || part.size > file_size) return false;
      const std::int64_t moved = unzigzag(distance);
      if (moved > static_cast<std::int64_t>(blocks) || moved < -static_cast<std::int64_t>(blocks))
        return false;
      // Wraps around where the file would begin earlier: then it is too large.
      part.offset = before + static_cast<std::uint64_t>(moved) * kTarBlock;
      if (part.offset > file_size || part.size > file_size - part.offset) return false;
      before = part.offset + tar_padded(part.size);
      end_ = std::max(end_, before);
    }
    return true;
  }
  std::uint64_t header_offset() const { return header_offset_; }
  std::size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
  std::uint64_t header_offset_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace

std::uint64_t ShardIndex::find(std::uint64_t sample, std::span<TarPart> parts) const {
  SPDLD_CHECK(sample < samples_ && parts.size() == max_bytes_.size());
  SampleReader reader(std::string_view(blob_).substr(offsets_[sample / kBlock]));
  for (std::uint64_t i = sample - sample % kBlock; i <= sample; ++i)
    SPDLD_CHECK(reader.next(i % kBlock == 0, parts, stamp.size_bytes));
  return reader.header_offset();
}

std::uint64_t ShardIndex::memory_bytes() const {
  std::uint64_t bytes = sizeof *this + path.capacity() + blob_.capacity() +
                        (offsets_.capacity() + split_hashes_.capacity()) * sizeof offsets_[0] +
                        max_bytes_.capacity() * sizeof max_bytes_[0] + values.memory_bytes();
  for (const std::string& key : value_keys) bytes += sizeof(std::string) + key.capacity();
  return bytes;
}

void ShardIndex::write(BinaryWriter& out) const {
  out.string(path);
  out.number(stamp.device);
  out.number(stamp.inode);
  out.number(stamp.size_bytes);
  out.number(stamp.mtime_ns);
  out.number(stamp.ctime_ns);
  out.number(static_cast<std::uint8_t>(settled ? 1 : 0));
  for (const std::uint64_t count : skipped) out.number(count);
  for (const std::uint64_t half : keys_digest) out.number(half);
  out.number(samples_);
  out.number<std::uint64_t>(offsets_.size());
  for (const std::uint64_t offset : offsets_) out.number(offset);
  out.number<std::uint64_t>(blob_.size());
  out.raw(blob_);
  for (const std::uint64_t hash : split_hashes_) out.number(hash);
  values.write(out);
  out.number<std::uint64_t>(value_keys.size());
  for (const std::string& key : value_keys) out.string(key);
}

std::optional<ShardIndex> ShardIndex::read(BinaryReader& in, std::size_t parts) {
  ShardIndex index;
  index.path = in.string();
  index.stamp.device = in.number<std::uint64_t>();
  index.stamp.inode = in.number<std::uint64_t>();
  index.stamp.size_bytes = in.number<std::uint64_t>();
  index.stamp.mtime_ns = in.number<std::int64_t>();
  index.stamp.ctime_ns = in.number<std::int64_t>();
  index.settled = in.number<std::uint8_t>() != 0;
  for (std::uint64_t& count : index.skipped) count = in.number<std::uint64_t>();
  for (std::uint64_t& half : index.keys_digest) half = in.number<std::uint64_t>();
  index.samples_ = in.number<std::uint64_t>();
  index.offsets_.resize(in.count(sizeof(std::uint64_t)));
  for (std::uint64_t& offset : index.offsets_) offset = in.number<std::uint64_t>();
  index.blob_ = in.raw(in.number<std::uint64_t>());
  // Each sample takes a byte there, too: no more room is taken than there are bytes.
  if (index.samples_ > index.blob_.size()) return std::nullopt;
  index.split_hashes_.resize(index.samples_);
  for (std::uint64_t& hash : index.split_hashes_) hash = in.number<std::uint64_t>();
  std::optional<Columns> values = Columns::read(in);
  if (!values) return std::nullopt;
  index.values = std::move(*values);
  for (std::size_t n = in.count(4); n > 0; --n) index.value_keys.push_back(in.string());
  index.max_bytes_.resize(parts);
  if (!in.ok() || !index.is_sound()) return std::nullopt;
  return index;
}

// A checksum finds accidents; this makes sure that find() stays inside whatever was written.
bool ShardIndex::is_sound() {
  if (stamp.size_bytes > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return false;
  if (samples_ > blob_.size() || value_keys.size() != values.size()) return false;
  if (values.size() > 0 && values.rows() != samples_) return false;
  if (offsets_.size() != samples_ / kBlock + (samples_ % kBlock == 0 ? 0 : 1)) return false;
  std::vector<TarPart> parts(max_bytes_.size());
  SampleReader reader(blob_);
  for (std::uint64_t i = 0; i < samples_; ++i) {
    if (i % kBlock == 0 && offsets_[i / kBlock] != blob_.size() - reader.left()) return false;
    if (!reader.next(i % kBlock == 0, parts, stamp.size_bytes)) return false;
    for (std::size_t part = 0; part < parts.size(); ++part)
      max_bytes_[part] = std::max(max_bytes_[part], parts[part].size);
  }
  return reader.left() == 0;
}

void ShardIndexBuilder::add(std::uint64_t header_offset, std::span<const TarPart> parts,
                            std::uint64_t split_hash) {
  const bool first_of_block = index_.samples_ % ShardIndex::kBlock == 0;
  if (first_of_block) index_.offsets_.push_back(index_.blob_.size());
  SPDLD_CHECK(header_offset >= end_ && parts.size() == index_.max_bytes_.size());
  put_varint(index_.blob_, (header_offset - (first_of_block ? 0 : end_)) / kTarBlock);
  end_ = header_offset;
  std::uint64_t before = header_offset;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const TarPart& part = parts[i];
    if (!part.present) {
      put_varint(index_.blob_, 0);
      continue;
    }
    put_varint(index_.blob_, part.size + 1);
    const auto moved = static_cast<std::int64_t>(part.offset - before);
    put_varint(index_.blob_, zigzag(moved / static_cast<std::int64_t>(kTarBlock)));
    before = part.offset + tar_padded(part.size);
    end_ = std::max(end_, before);
    index_.max_bytes_[i] = std::max(index_.max_bytes_[i], part.size);
  }
  index_.split_hashes_.push_back(split_hash);
  ++index_.samples_;
}

ShardIndex ShardIndexBuilder::finish() && {
  index_.blob_.shrink_to_fit();
  index_.offsets_.shrink_to_fit();
  index_.split_hashes_.shrink_to_fit();
  return std::move(index_);
}

}  // namespace spdld::source
