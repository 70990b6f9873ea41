// SPDX-License-Identifier: Apache-2.0
#include "source/closed_source.h"

#include "source/bytes/digest_text.h"

namespace spdld::source {
namespace {

std::string classes_digest(const Source& source) {
  DigestBuilder digest;
  const auto add_number = [&digest](std::uint64_t number) {
    digest.add({reinterpret_cast<const char*>(&number), sizeof number});
  };
  for (const std::string& name : source.classes()) {
    add_number(name.size());
    digest.add(name);
  }
  const std::span<const std::int64_t> ids = source.category_ids();
  digest.add({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
  return digest.finish();
}

}  // namespace

ClosedSource::ClosedSource(const Source& source)
    : size_(source.size()),
      listing_digest_(source.listing_digest()),
      values_digest_(source.values_digest()),
      classes_digest_(classes_digest(source)),
      fields_(source.fields()),
      origin_(source.origin()),
      dataset_(source.dataset()) {}

bool ClosedSource::has_same_items(const Source& source) const {
  return source.size() == size_ && source.listing_digest() == listing_digest_ &&
         source.values_digest() == values_digest_ && classes_digest(source) == classes_digest_;
}

std::string ClosedSource::uri(std::uint64_t item) const { return "item " + std::to_string(item); }

Value ClosedSource::value(std::uint64_t, std::size_t) const { return std::int64_t{0}; }

Result<FetchState> ClosedSource::fetch(std::uint64_t item, std::span<const PartRequest>,
                                       FetchedItem&, FetchSink&, std::uint64_t) {
  return error(Code::kInternal, uri(item) + " is of a source that is closed");
}

}  // namespace spdld::source
