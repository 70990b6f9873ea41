// SPDX-License-Identifier: Apache-2.0
#include "source/selected_source.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "source/bytes/digest_text.h"
#include "source/select/select.h"

namespace spdld::source {
namespace {

using RowsPtr = std::shared_ptr<const std::vector<std::uint64_t>>;

std::string digest_of(const std::string& listing, const std::vector<std::uint64_t>& rows) {
  DigestBuilder digest;
  digest.add(listing);
  digest.add({reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof rows[0]});
  return digest.finish();
}

// A source of which some items are left out. Owns the source that it selects from.
class SelectedSource final : public Source {
 public:
  SelectedSource(std::unique_ptr<Source> from, RowsPtr rows, ListingMemory::SharePtr memory,
                 std::string digest)
      : from_(std::move(from)),
        memory_(std::move(memory)),
        rows_(std::move(rows)),
        digest_(std::move(digest)) {}

  std::uint64_t size() const override { return rows_->size(); }
  const std::string& listing_digest() const override { return digest_; }
  std::string values_digest() const override { return from_->values_digest(); }
  const std::vector<SourceField>& fields() const override { return from_->fields(); }
  const std::vector<std::string>& classes() const override { return from_->classes(); }
  std::span<const std::int64_t> category_ids() const override { return from_->category_ids(); }
  std::string uri(std::uint64_t item) const override { return from_->uri(row(item)); }
  std::string read_uri(std::uint64_t item) const override { return from_->read_uri(row(item)); }
  Value value(std::uint64_t item, std::size_t value) const override {
    return from_->value(row(item), value);
  }
  Result<FetchState> fetch(std::uint64_t item, std::span<const PartRequest> requests,
                           FetchedItem& out, FetchSink& sink, std::uint64_t token) override {
    return from_->fetch(row(item), requests, out, sink, token);
  }
  void bring_at_hand(std::span<WantedItem> items, std::span<const PartRequest> requests) override {
    for (WantedItem& wanted : items) wanted.item = row(wanted.item);
    from_->bring_at_hand(items, requests);
  }
  Result<std::unique_ptr<Source>> read_by(const Credentials& reader) const override {
    SPDLD_ASSIGN(std::unique_ptr<Source> from, from_->read_by(reader));
    if (from == nullptr) return from;
    return std::make_unique<SelectedSource>(std::move(from), rows_, memory_, digest_);
  }
  std::uint64_t split_hash(std::uint64_t item) const override {
    return from_->split_hash(row(item));
  }
  bool has_part(std::uint64_t item, std::size_t part) const override {
    return from_->has_part(row(item), part);
  }
  std::uint64_t part_key(std::uint64_t item, std::size_t part) const override {
    return from_->part_key(row(item), part);
  }
  Result<std::unique_ptr<PartBytes>> open_part(std::uint64_t item,
                                               std::size_t part) const override {
    return from_->open_part(row(item), part);
  }
  std::optional<std::uint64_t> listed_bytes(std::uint64_t item, std::size_t part) const override {
    return from_->listed_bytes(row(item), part);
  }
  std::vector<std::string> suffixes(std::size_t part) const override {
    return from_->suffixes(part);
  }
  std::string origin() const override { return from_->origin(); }
  std::string dataset() const override { return from_->dataset(); }
  void look_again() override { from_->look_again(); }
  bool has_changed() override { return from_->has_changed(); }

 private:
  std::uint64_t row(std::uint64_t item) const {
    SPDLD_CHECK(item < rows_->size());
    return (*rows_)[item];
  }

  const std::unique_ptr<Source> from_;
  const ListingMemory::SharePtr memory_;  // that the rows count in
  const RowsPtr rows_;
  const std::string digest_;
};

// What the source's listing knows, column by column.
Columns values_of(const Source& source) {
  std::vector<Columns::Info> infos;
  std::vector<std::size_t> values;
  for (const SourceField& field : source.fields()) {
    if (field.kind != SourceField::Kind::kValue) continue;
    infos.push_back({.name = field.name, .type = field.type});
    values.push_back(field.index);
  }
  ColumnsBuilder builder(std::move(infos));
  for (std::uint64_t item = 0; item < source.size(); ++item) {
    for (std::size_t i = 0; i < values.size(); ++i) builder.add(i, source.value(item, values[i]));
  }
  return std::move(builder).finish();
}

// That selecting takes for each item at least: its number, and what a condition may ask of it.
std::uint64_t least_bytes(const Source& source, const SelectSpec& select) {
  std::uint64_t bytes = sizeof(std::uint64_t);
  for (const SourceField& field : source.fields()) {
    if (field.kind == SourceField::Kind::kValue && !select.where.empty())
      bytes += sizeof(std::uint64_t);
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Source>> select_from(std::unique_ptr<Source> from, const SelectSpec& select,
                                            UnknownNames unknown, ListingMemory::SharePtr memory) {
  SPDLD_TRY(
      memory->resize(from->size() * least_bytes(*from, select)).with_context("source.select"));
  const Columns columns = select.where.empty() ? Columns() : values_of(*from);
  ClassNames classes{.names = from->classes()};
  for (const SourceField& field : from->fields()) {
    if (field.classes) classes.columns.push_back(field.name);
    if (field.kind == SourceField::Kind::kPart) unknown.parts.push_back(field.name);
  }
  SPDLD_ASSIGN(
      std::vector<std::uint64_t> rows,
      select_rows(select, {.rows = from->size(),
                           .columns = columns,
                           .split_hash = [&](std::uint64_t item) { return from->split_hash(item); },
                           .classes = std::move(classes),
                           .unknown = std::move(unknown)}));
  rows.shrink_to_fit();
  SPDLD_TRY(memory->resize(rows.size() * sizeof rows[0]).with_context("source.select"));
  std::string digest = digest_of(from->listing_digest(), rows);
  return std::make_unique<SelectedSource>(
      std::move(from), std::make_shared<const std::vector<std::uint64_t>>(std::move(rows)),
      std::move(memory), std::move(digest));
}

}  // namespace spdld::source
