// SPDX-License-Identifier: Apache-2.0
#include "source/joined_source.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "source/bytes/binary.h"
#include "source/bytes/digest_text.h"
#include "source/kept/dataset_id.h"

namespace spdld::source {
namespace {

class JoinedSource final : public Source {
 public:
  JoinedSource(std::vector<std::unique_ptr<Source>> sources, std::vector<std::string> prefixes)
      : sources_(std::move(sources)), prefixes_(std::move(prefixes)) {
    SPDLD_CHECK(prefixes_.empty() || prefixes_.size() == sources_.size());
    BinaryWriter listings;
    for (const auto& source : sources_) {
      first_.push_back(size_);
      size_ += source->size();
      listings.string(source->listing_digest());
    }
    digest_ = digest_text(listings.text());
  }

  std::uint64_t size() const override { return size_; }
  const std::string& listing_digest() const override { return digest_; }
  std::string values_digest() const override {
    BinaryWriter values;
    bool any = false;
    for (const auto& source : sources_) {
      const std::string digest = source->values_digest();
      any = any || !digest.empty();
      values.string(digest);
    }
    return any ? digest_text(values.text()) : std::string();
  }
  const std::vector<SourceField>& fields() const override { return sources_.front()->fields(); }
  const std::vector<std::string>& classes() const override { return sources_.front()->classes(); }
  std::string uri(std::uint64_t item) const override {
    const Place at = place(item);
    return prefix(at) + at.source->uri(at.item);
  }
  std::string read_uri(std::uint64_t item) const override {
    const Place at = place(item);
    return prefix(at) + at.source->read_uri(at.item);
  }
  Value value(std::uint64_t item, std::size_t value) const override {
    const Place at = place(item);
    return at.source->value(at.item, value);
  }
  Result<FetchState> fetch(std::uint64_t item, std::span<const PartRequest> requests,
                           FetchedItem& out, FetchSink& sink, std::uint64_t token) override {
    const Place at = place(item);
    return at.source->fetch(at.item, requests, out, sink, token);
  }
  void bring_at_hand(std::span<WantedItem> items, std::span<const PartRequest> requests) override {
    std::sort(items.begin(), items.end(),
              [](const WantedItem& a, const WantedItem& b) { return a.item < b.item; });
    for (auto first = items.begin(); first != items.end();) {
      Source* const source = place(first->item).source;
      auto last = first;
      for (; last != items.end() && place(last->item).source == source; ++last) {
      }
      for (auto each = first; each != last; ++each) each->item = place(each->item).item;
      source->bring_at_hand({first, last}, requests);
      first = last;
    }
  }
  Result<std::unique_ptr<Source>> read_by(const Credentials& reader) const override {
    std::vector<std::unique_ptr<Source>> sources;
    for (const auto& source : sources_) {
      SPDLD_ASSIGN(std::unique_ptr<Source> readable, source->read_by(reader));
      // All of them are files, or none is.
      if (readable == nullptr) return std::unique_ptr<Source>();
      sources.push_back(std::move(readable));
    }
    return std::make_unique<JoinedSource>(std::move(sources), prefixes_);
  }
  std::uint64_t split_hash(std::uint64_t item) const override {
    const Place at = place(item);
    return at.source->split_hash(at.item);
  }
  bool has_part(std::uint64_t item, std::size_t part) const override {
    const Place at = place(item);
    return at.source->has_part(at.item, part);
  }
  std::uint64_t part_key(std::uint64_t item, std::size_t part) const override {
    const Place at = place(item);
    return mix64(at.source->part_key(at.item, part), at.number);
  }
  Result<std::unique_ptr<PartBytes>> open_part(std::uint64_t item,
                                               std::size_t part) const override {
    const Place at = place(item);
    return at.source->open_part(at.item, part);
  }
  std::optional<std::uint64_t> listed_bytes(std::uint64_t item, std::size_t part) const override {
    const Place at = place(item);
    return at.source->listed_bytes(at.item, part);
  }
  std::vector<std::string> suffixes(std::size_t part) const override {
    std::vector<std::string> all;
    for (const auto& source : sources_) {
      for (std::string& suffix : source->suffixes(part)) {
        if (std::find(all.begin(), all.end(), suffix) == all.end())
          all.push_back(std::move(suffix));
      }
    }
    return all;
  }
  std::string origin() const override {
    std::string joined;
    for (const auto& source : sources_) {
      const std::string origin = source->origin();
      if (origin.empty()) return {};
      joined += (joined.empty() ? "" : "\n") + origin;
    }
    return joined;
  }
  std::string dataset() const override {
    std::vector<std::string> ids;
    for (const auto& source : sources_) {
      ids.push_back(source->dataset());
      if (ids.back().empty()) return {};
    }
    return join_datasets(ids);
  }
  void look_again() override {
    for (const auto& source : sources_) source->look_again();
  }
  bool has_changed() override {
    return std::any_of(sources_.begin(), sources_.end(),
                       [](const auto& source) { return source->has_changed(); });
  }

 private:
  struct Place {
    Source* source = nullptr;
    std::size_t number = 0;  // of the source
    std::uint64_t item = 0;
  };
  Place place(std::uint64_t item) const {
    SPDLD_CHECK(item < size_);
    const auto behind = std::upper_bound(first_.begin(), first_.end(), item);
    const auto at = static_cast<std::size_t>(behind - first_.begin() - 1);
    return {.source = sources_[at].get(), .number = at, .item = item - first_[at]};
  }
  // What names of its items begin with for people; not for splits and digests.
  std::string prefix(const Place& at) const {
    return prefixes_.empty() ? std::string() : prefixes_[at.number];
  }

  const std::vector<std::unique_ptr<Source>> sources_;
  const std::vector<std::string> prefixes_;
  std::vector<std::uint64_t> first_;  // item of each source
  std::uint64_t size_ = 0;
  std::string digest_;
};

}  // namespace

std::unique_ptr<Source> join_sources(std::vector<std::unique_ptr<Source>> sources,
                                     std::vector<std::string> prefixes) {
  SPDLD_CHECK(!sources.empty());
  return std::make_unique<JoinedSource>(std::move(sources), std::move(prefixes));
}

}  // namespace spdld::source
