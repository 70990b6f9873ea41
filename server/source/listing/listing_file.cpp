// SPDX-License-Identifier: Apache-2.0
#include "source/listing/listing_file.h"

#include <xxhash.h>

#include <cstring>
#include <string_view>

#include "base/failpoint.h"
#include "source/bytes/binary.h"
#include "source/bytes/whole_file.h"

namespace spdld::source {
namespace {

constexpr std::string_view kListingMagic = "SPDLIDX2";

}  // namespace

Status ListingFile::save(const Listing& listing, const std::string& key, const std::string& path) {
  BinaryWriter out;
  out.raw(kListingMagic);
  out.string(key);
  out.string(listing.digest_);
  out.number(listing.size_);
  out.number(listing.listed_at_ns);
  out.number(static_cast<std::uint8_t>(listing.remote ? 1 : 0));
  out.number<std::uint64_t>(listing.top_directories.size());
  for (const std::string& name : listing.top_directories) out.string(name);
  out.number<std::uint64_t>(listing.stamps.size());
  for (const DirectoryStamp& stamp : listing.stamps) {
    out.string(stamp.path);
    out.number(stamp.inode);
    out.number(stamp.mtime_ns);
    out.number(stamp.ctime_ns);
  }
  out.number<std::uint64_t>(listing.runs_.size());
  for (const Listing::Run& run : listing.runs_) {
    out.number(run.first);
    out.string(run.directory);
  }
  out.number<std::uint64_t>(listing.offsets_.size());
  for (const std::uint64_t offset : listing.offsets_) out.number(offset);
  out.number<std::uint64_t>(listing.blob_.size());
  out.raw(listing.blob_);
  out.number<std::uint64_t>(XXH3_64bits(out.text().data(), out.text().size()));

  SPDLD_FAILPOINT_STATUS("source.listing.write");
  return write_whole_file(path, out.text());
}

Result<Listing> ListingFile::load(const std::string& key, const std::string& path) {
  return read(&key, path);
}

Result<Listing> ListingFile::load(const std::string& path) { return read(nullptr, path); }

Result<Listing> ListingFile::read(const std::string* key, const std::string& path) {
  SPDLD_ASSIGN(const std::string text, read_whole_file(path));
  const auto refuse = [&path](const char* why) {
    return error(Code::kDataLoss, path + " is no index of this source: " + why);
  };
  if (text.size() < kListingMagic.size() + sizeof(std::uint64_t) ||
      !text.starts_with(kListingMagic)) {
    return refuse("it is of another version");
  }
  const std::size_t end = text.size() - sizeof(std::uint64_t);
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, text.data() + end, sizeof checksum);
  if (checksum != XXH3_64bits(text.data(), end)) return refuse("it is damaged");

  BinaryReader in(std::string_view(text).substr(kListingMagic.size(), end - kListingMagic.size()));
  if (const std::string kept = in.string(); key != nullptr && kept != *key)
    return refuse("it lists something else");
  Listing listing;
  listing.digest_ = in.string();
  listing.size_ = in.number<std::uint64_t>();
  listing.listed_at_ns = in.number<std::int64_t>();
  listing.remote = in.number<std::uint8_t>() != 0;
  for (std::size_t n = in.count(4); n > 0; --n) listing.top_directories.push_back(in.string());
  for (std::size_t n = in.count(28); n > 0; --n) {
    DirectoryStamp stamp;
    stamp.path = in.string();
    stamp.inode = in.number<std::uint64_t>();
    stamp.mtime_ns = in.number<std::int64_t>();
    stamp.ctime_ns = in.number<std::int64_t>();
    listing.stamps.push_back(std::move(stamp));
  }
  for (std::size_t n = in.count(12); n > 0; --n) {
    const auto first = in.number<std::uint64_t>();
    listing.runs_.push_back({first, in.string()});
  }
  for (std::size_t n = in.count(8); n > 0; --n) {
    listing.offsets_.push_back(in.number<std::uint64_t>());
  }
  listing.blob_ = in.raw(in.number<std::uint64_t>());
  if (!in.ok() || in.left() != 0 || !is_sound(listing)) return refuse("it is damaged");
  return listing;
}

// A checksum finds accidents; this makes sure that uri() stays inside whatever was written.
bool ListingFile::is_sound(const Listing& listing) {
  if (listing.runs_.empty() != (listing.size_ == 0)) return false;
  for (std::size_t i = 0; i < listing.runs_.size(); ++i) {
    const std::uint64_t least = i == 0 ? 0 : listing.runs_[i - 1].first + 1;
    if (listing.runs_[i].first < least || listing.runs_[i].first >= listing.size_) return false;
  }
  if (!listing.runs_.empty() && listing.runs_[0].first != 0) return false;
  if (listing.offsets_.size() !=
      listing.size_ / Listing::kBlock + (listing.size_ % Listing::kBlock == 0 ? 0 : 1)) {
    return false;
  }
  const std::string& blob = listing.blob_;
  std::size_t at = 0;
  std::size_t length = 0;
  const auto number = [&](std::size_t& value) {
    value = 0;
    for (int shift = 0; shift < 21 && at < blob.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(blob[at++]);
      value |= static_cast<std::size_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  for (std::uint64_t item = 0; item < listing.size_; ++item) {
    if (item % Listing::kBlock == 0) {
      if (listing.offsets_[item / Listing::kBlock] != at) return false;
      length = 0;
    }
    std::size_t shared = 0;
    std::size_t rest = 0;
    if (!number(shared) || !number(rest) || shared > length || rest > blob.size() - at ||
        shared + rest > Listing::kMaxUri) {
      return false;
    }
    length = shared + rest;
    at += rest;
  }
  return at == blob.size();
}

}  // namespace spdld::source
