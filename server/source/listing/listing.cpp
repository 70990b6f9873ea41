// SPDX-License-Identifier: Apache-2.0
#include "source/listing/listing.h"

#include <algorithm>

#include "base/check.h"

namespace spdld::source {
namespace {

void append_number(std::string& out, std::size_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

std::size_t take_number(const char*& at) {
  std::size_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(*at++);
    value |= static_cast<std::size_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

}  // namespace

std::string Listing::uri(std::uint64_t item) const {
  SPDLD_CHECK(item < size_);
  const char* at = blob_.data() + offsets_[item / kBlock];
  std::string uri;
  for (std::uint64_t i = 0; i <= item % kBlock; ++i) {
    const std::size_t shared = take_number(at);
    const std::size_t rest = take_number(at);
    uri.resize(shared);
    uri.append(at, rest);
    at += rest;
  }
  return uri;
}

std::uint64_t Listing::memory_bytes() const {
  std::uint64_t bytes = blob_.capacity() + offsets_.capacity() * sizeof offsets_[0];
  for (const DirectoryStamp& stamp : stamps) bytes += sizeof stamp + stamp.path.capacity();
  return bytes;
}

void ListingBuilder::add(std::string_view uri) {
  SPDLD_CHECK(uri > last_ && uri.size() <= Listing::kMaxUri);
  std::size_t shared = 0;
  if (listing_.size_ % Listing::kBlock == 0) {
    listing_.offsets_.push_back(listing_.blob_.size());
  } else {
    const auto differs = std::mismatch(uri.begin(), uri.end(), last_.begin(), last_.end());
    shared = static_cast<std::size_t>(differs.first - uri.begin());
  }
  append_number(listing_.blob_, shared);
  append_number(listing_.blob_, uri.size() - shared);
  listing_.blob_.append(uri.substr(shared));

  // The zero byte, which no path holds, keeps "ab", "c" from being "a", "bc".
  digest_.add(uri);
  digest_.add(std::string_view("\0", 1));

  const std::size_t slash = uri.find('/');
  const std::string_view top = slash == std::string_view::npos ? "" : uri.substr(0, slash);
  if (listing_.runs_.empty() || listing_.runs_.back().directory != top) {
    listing_.runs_.push_back({listing_.size_, std::string(top)});
  }
  last_ = uri;
  ++listing_.size_;
}

Listing ListingBuilder::finish() && {
  listing_.digest_ = digest_.finish(listing_.size_);
  listing_.blob_.shrink_to_fit();
  listing_.offsets_.shrink_to_fit();
  return std::move(listing_);
}

}  // namespace spdld::source
