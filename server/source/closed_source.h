// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "source/item/source.h"

namespace spdld::source {

// What stays of a source whose items nobody uses: how many they are, what may be asked of them, and
// what tells whether a source that is opened later has the same ones. It takes no memory of theirs,
// and has none that could be named or fetched. Immutable; any thread.
class ClosedSource final : public Source {
 public:
  // Of that source, which may go then.
  explicit ClosedSource(const Source& source);

  // Whether `source` has the same items, with the same values and classes.
  bool has_same_items(const Source& source) const;

  std::uint64_t size() const override { return size_; }
  const std::string& listing_digest() const override { return listing_digest_; }
  std::string values_digest() const override { return values_digest_; }
  const std::vector<SourceField>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return no_classes_; }
  std::string uri(std::uint64_t item) const override;
  Value value(std::uint64_t item, std::size_t value) const override;
  Result<FetchState> fetch(std::uint64_t item, std::span<const PartRequest> requests,
                           FetchedItem& out, FetchSink& sink, std::uint64_t token) override;
  std::string origin() const override { return origin_; }
  std::string dataset() const override { return dataset_; }

 private:
  const std::uint64_t size_;
  const std::string listing_digest_;
  const std::string values_digest_;
  const std::string classes_digest_;
  const std::vector<SourceField> fields_;
  const std::vector<std::string> no_classes_ = {};
  const std::string origin_;
  const std::string dataset_;
};

}  // namespace spdld::source
