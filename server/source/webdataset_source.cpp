// SPDX-License-Identifier: Apache-2.0
#include "source/webdataset_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text/counted.h"
#include "op/webdataset_suffix.h"
#include "source/bytes/file_bytes.h"
#include "source/file/disk.h"
#include "source/file/expected_content.h"
#include "source/file/file_fetcher.h"
#include "source/file/part_ranges.h"
#include "source/file/reopening_disk.h"
#include "source/file/root_disk.h"
#include "source/item/item_hashes.h"
#include "source/item/suffixes.h"
#include "source/kept/dataset_id.h"
#include "source/kept/kept_datasets.h"
#include "source/listing/classes.h"
#include "source/tar/indexed_shards.h"
#include "source/tar/shard_files.h"
#include "source/tar/shard_names.h"
#include "source/tar/tar_index_build.h"

namespace spdld::source {
namespace {

constexpr const char* kShardsKey = "source.webdataset.shards";

// What an applied source is made of: all of it that does not depend on who reads it.
struct ShardData {
  ShardsDatasetPtr dataset;
  std::shared_ptr<IndexedShards> indexed;  // the dataset's
  WebdatasetSpec spec;
  ShardFiles files;
  std::vector<SourceField> fields;
  std::string origin;
  AccessRules access;
  FileFetcher::Options fetcher;
};
using ShardDataPtr = std::shared_ptr<const ShardData>;

// Whether it is known, without reading the shard, that its samples lie where the index has them.
bool has_its_samples(const ExpectedContent& shard, int fd) {
  const std::optional<ItemStamp> now = stamp_of_fd(fd);
  std::string how;
  return now && likeness(shard, *now, how) == Likeness::kSame;
}

// What is at hand of a file: the page cache alone is asked.
class CachedBytes final : public FileBytes {
 public:
  CachedBytes(Disk& disk, const OpenFile& file, std::string path)
      : disk_(disk), file_(file), path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return file_.size_bytes; }
  Result<std::size_t> read(std::uint64_t offset, std::span<char> out) override {
    const ssize_t count = disk_.read_cached(file_, std::as_writable_bytes(out), offset);
    if (count < 0) return tl::unexpected(errno_status(static_cast<int>(-count), path_));
    return static_cast<std::size_t>(count);
  }

 private:
  Disk& disk_;
  const OpenFile& file_;
  const std::string path_;
};

class WebdatasetSource final : public Source {
 public:
  WebdatasetSource(ShardDataPtr data, std::shared_ptr<const Access> access, IoPool& io,
                   std::vector<FileRoot> roots, std::vector<ReopeningDisk*> reopening)
      : data_(std::move(data)),
        index_(*data_->dataset->index),
        access_(std::move(access)),
        io_(io),
        reopening_(std::move(reopening)),
        fetcher_(std::move(roots), io, access_->reader().uid, data_->fetcher) {}

  std::uint64_t size() const override { return index_.size(); }
  const std::string& listing_digest() const override { return index_.digest(); }
  std::string values_digest() const override { return index_.data_digest(); }
  const std::vector<SourceField>& fields() const override { return data_->fields; }
  const std::vector<std::string>& classes() const override { return index_.classes(); }
  std::string dataset() const override { return data_->dataset->id; }
  std::string origin() const override { return data_->origin; }
  std::uint64_t split_hash(std::uint64_t item) const override { return index_.split_hash(item); }
  bool has_part(std::uint64_t item, std::size_t part) const override {
    std::array<TarPart, kMostPieces> parts;
    index_.find(item, {parts.data(), index_.parts()});
    return parts[part].present;
  }
  std::uint64_t part_key(std::uint64_t item, std::size_t part) const override {
    std::array<TarPart, kMostPieces> parts;
    const TarIndex::Place place = index_.find(item, {parts.data(), index_.parts()});
    return source::part_key(index_.shards()[place.shard].path, parts[part].offset,
                            parts[part].size);
  }
  std::optional<std::uint64_t> listed_bytes(std::uint64_t item, std::size_t part) const override {
    std::array<TarPart, kMostPieces> parts;
    index_.find(item, {parts.data(), index_.parts()});
    return parts[part].size;
  }
  std::vector<std::string> suffixes(std::size_t part) const override {
    std::vector<std::string> suffixes;
    for (const std::string& suffix : data_->spec.parts[part].suffixes)
      add_suffix("." + suffix, suffixes);
    return suffixes;
  }
  Value value(std::uint64_t item, std::size_t value) const override {
    return index_.values().value(item, value);
  }

  std::string uri(std::uint64_t item) const override {
    const TarIndex::Place place = place_of(item);
    const FileRange& shard = data_->files.shards[place.shard];
    if (!reopening_.empty() && reopening_[shard.root]->opening(shard.uri).at_once) {
      OpenFile file;
      ReopeningDisk& disk = *reopening_[shard.root];
      if (disk.open(shard.uri, file) == 0 && has_its_samples(*shard.expected, file.fd.get())) {
        CachedBytes bytes(disk, file, shard.uri);
        if (const auto key = key_at(bytes, place.header_offset)) return name(place, *key);
      }
    }
    return by_place(place);
  }
  std::string read_uri(std::uint64_t item) const override {
    const TarIndex::Place place = place_of(item);
    const std::string& path = index_.shards()[place.shard].path;
    const auto opened = access_->open(path, kShardFlags, "cannot read");
    if (!opened || !has_its_samples(*data_->files.shards[place.shard].expected, opened->fd.get()))
      return by_place(place);
    OpenFileBytes bytes(opened->fd.get(), path, static_cast<std::uint64_t>(opened->info.st_size));
    const auto key = key_at(bytes, place.header_offset);
    return key ? name(place, *key) : by_place(place);
  }

  Result<FetchState> fetch(std::uint64_t item, std::span<const PartRequest> requests,
                           FetchedItem& out, FetchSink& sink, std::uint64_t token) override {
    lay_out(item, requests, out);
    if (!out.ranges().empty()) return fetcher_.fetch(out, sink, token);
    out.bring_nothing();
    return FetchState::kReady;
  }
  void bring_at_hand(std::span<WantedItem> items, std::span<const PartRequest> requests) override {
    for (const WantedItem& wanted : items) lay_out(wanted.item, requests, *wanted.out);
    fetcher_.bring_at_hand(items);
  }

  Result<std::unique_ptr<PartBytes>> open_part(std::uint64_t item,
                                               std::size_t part) const override {
    std::array<TarPart, kMostPieces> parts;
    const TarIndex::Place place = index_.find(item, {parts.data(), index_.parts()});
    ItemBytes at;
    at.begin();
    FileRange& range = at.add_range();
    range = data_->files.shards[place.shard];
    range.offset = parts[part].offset;
    range.size_bytes = parts[part].size;
    at.add_place({});
    return fetcher_.open(at);
  }

  Result<std::unique_ptr<Source>> read_by(const Credentials& reader) const override;

  void look_again() override {
    for (ReopeningDisk* const root : reopening_) root->look_again();
  }
  bool has_changed() override {
    const auto& shards = index_.shards();
    for (std::size_t number = 0; number < shards.size(); ++number) {
      struct stat info {};
      if (::stat(shards[number].path.c_str(), &info) == 0 &&
          is_as_indexed(stamp_of(info), shards[number].stamp))
        continue;
      // Opening it compares it with the index.
      ItemBytes whole;
      whole.add_range() = data_->files.shards[number];
      whole.add_place({});
      if (!fetcher_.open(whole)) return true;
    }
    const auto paths = shard_paths(data_->spec.shards, *access_, {});
    const auto same = [](const ShardIndex& shard, const std::string& path) {
      return shard.path == path;
    };
    return !paths || !std::equal(shards.begin(), shards.end(), paths->begin(), paths->end(), same);
  }

 private:
  // Without a range where the item has nothing of what is requested.
  void lay_out(std::uint64_t item, std::span<const PartRequest> requests, FetchedItem& out) const {
    std::array<TarPart, kMostPieces> parts;
    const TarIndex::Place place = index_.find(item, {parts.data(), index_.parts()});
    std::array<Piece, kMostPieces> pieces;
    SPDLD_CHECK(requests.size() <= kMostPieces);
    const FileRange& shard = data_->files.shards[place.shard];
    std::optional<ExpectedContent> expected_part;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const TarPart& part = parts[requests[i].part];
      if (requests[i].expected != nullptr && !expected_part) {
        expected_part = *requests[i].expected;
        expected_part->offset = part.offset;
        expected_part->size_bytes = part.size;
      }
      const std::uint64_t begin = std::min(requests[i].offset, part.size);
      pieces[i] = {.offset = part.offset + begin,
                   .size_bytes = std::min(requests[i].size_bytes, part.size - begin)};
    }
    out.begin();
    // A part that the caller may have already lies in a range of its own, which need not be read if
    // the shard is as it was.
    const Revision& revision = out.revision;
    const bool may_spare = revision.asked && revision.known;
    add_pieces({pieces.data(), requests.size()}, shard, RangeReader::kMostRanges, out,
               may_spare ? std::optional(revision.request) : std::nullopt);
    if (expected_part) out.expect_part(*expected_part);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!parts[requests[i].part].present) out.set_absent(i);
    }
  }
  TarIndex::Place place_of(std::uint64_t item) const {
    std::array<TarPart, kMostPieces> parts;
    return index_.find(item, {parts.data(), index_.parts()});
  }
  std::string name(const TarIndex::Place& place, const std::string& key) const {
    return tar_uri(index_.shard_name(place.shard), key);
  }
  std::string by_place(const TarIndex::Place& place) const {
    return std::string(index_.shard_name(place.shard)) + " at byte " +
           std::to_string(place.header_offset);
  }

  const ShardDataPtr data_;
  const TarIndex& index_;  // the dataset's
  const std::shared_ptr<const Access> access_;
  IoPool& io_;
  const std::vector<ReopeningDisk*> reopening_;  // the fetcher's, one for each root
  FileFetcher fetcher_;
};

// Opens what the shards lie below for one reader; `later`: with the first file that is read.
std::unique_ptr<Source> make_source(ShardDataPtr data, std::shared_ptr<const Access> access,
                                    IoPool& io, std::unique_ptr<Disk> given, bool later = false) {
  std::vector<FileRoot> roots;
  std::vector<ReopeningDisk*> reopening;
  for (const RootDiskOptions& options : data->files.roots) {
    FileRoot root{.path = options.root, .disk = std::move(given)};
    if (root.disk == nullptr) {
      auto made = make_root_disk(
          options, access,
          later ? not_looked_at(options.root) : open_root(options.root, *access, options.key));
      reopening.push_back(made.get());
      root.disk = std::move(made);
    }
    roots.push_back(std::move(root));
  }
  return std::make_unique<WebdatasetSource>(std::move(data), std::move(access), io,
                                            std::move(roots), std::move(reopening));
}

// Whether the reader may read all shards that are there: whoever has their index is told of all
// that it says.
Status check_reader(const TarIndex& index, const Access& access) {
  for (const ShardIndex& shard : index.shards()) {
    Access::Opened opened;
    const Denial denial =
        access.open(AT_FDCWD, shard.path, Access::Links::kFollow, kShardFlags, opened);
    if (!Access::is_open_or_gone(denial)) return Access::status(denial, "cannot read", shard.path);
  }
  return {};
}

Result<std::unique_ptr<Source>> WebdatasetSource::read_by(const Credentials& reader) const {
  auto access = std::make_shared<const Access>(data_->access, reader);
  SPDLD_TRY(check_reader(index_, *access));
  return make_source(data_, std::move(access), io_, nullptr);
}

bool is_class(const std::string& suffix) {
  const Result<SuffixKind> kind = suffix_kind(suffix);
  return kind && *kind == SuffixKind::kClass;
}

class ShardsOpener {
 public:
  ShardsOpener(const WebdatasetSpec& spec, SourceOptions& options)
      : spec_(spec),
        options_(options),
        access_(std::make_shared<const Access>(options.access, options.reader)) {}

  Result<std::unique_ptr<Source>> open() {
    auto data = std::make_shared<ShardData>();
    data->spec = spec_;
    data->access = options_.access;
    const bool again = options_.kept != nullptr && !options_.dataset.empty();
    SPDLD_ASSIGN(data->dataset, again ? reopen() : index());
    data->indexed = std::make_shared<IndexedShards>(spec_, data->dataset->index);
    data->files = find_shards(data->dataset->index->shards(), data->indexed.get(), kShardsKey,
                              options_.access);
    SPDLD_TRY(name_fields(*data));
    data->origin = "webdataset " + data->dataset->index->directory();
    data->fetcher = FileFetcher::options_of(options_);
    return make_source(std::move(data), access_, options_.io, std::move(options_.disk),
                       options_.from_kept_alone);
  }

 private:
  void warn(std::string text) {
    if (options_.warnings != nullptr) options_.warnings->push_back(std::move(text));
  }

  Result<ShardsDatasetPtr> index() {
    const ListingMemory::SharePtr memory = options_.share();
    TarIndexOptions options;
    options.memory = memory;
    if (spec_.classes) {
      SPDLD_ASSIGN(options.classes, class_names(*spec_.classes, Listing(), options_.classes,
                                                *access_, memory.get()));
    }
    if (options_.kept != nullptr) options.directory = options_.kept->tar_indexes().directory();
    options.threads = options_.listing_threads;
    options.max_samples = options_.max_items;
    options.stop = options_.stop;
    options.warnings = options_.warnings;
    if (options_.progress)
      options.progress = [this](const TarIndexProgress& so_far) { report(so_far); };
    SPDLD_ASSIGN(OpenedTarIndex opened, open_tar_index(spec_, *access_, options));
    tell_skipped(opened.index->skipped());
    SPDLD_TRY(memory->resize(opened.index->memory_bytes())
                  .with_context("the index of " + spec_.shards.front()));
    if (options_.kept != nullptr)
      return options_.kept->tar_indexes().add(opened.name, std::move(opened.index), memory);
    return std::make_shared<const ShardsDataset>(
        ShardsDataset{.index = std::move(opened.index), .memory = memory});
  }

  Result<ShardsDatasetPtr> reopen() {
    const Result<ShardsDatasetPtr> kept =
        options_.kept->tar_indexes().open(options_.dataset, spec_, options_.share());
    if (!kept && kept.error().code() == Code::kResourceExhausted) return kept;
    if (options_.from_kept_alone) return kept;
    if (kept) {
      SPDLD_TRY(check_reader(*(*kept)->index, *access_));
      return kept;
    }
    const std::string why = "what was applied cannot be opened: " + kept.error().message();
    const std::string way_out =
        "; bring that file back, or apply the pipeline again and start its jobs anew";
    const Result<ShardsDatasetPtr> again = index();
    if (!again)
      return error(Code::kDataLoss,
                   why + ", nor indexed again: " + again.error().message() + way_out);
    if (!is_same_data((*again)->id, options_.dataset))
      return error(Code::kDataLoss, why + ", and the shards hold other samples by now" + way_out);
    warn(why + "; the shards were indexed again, and hold the same samples");
    return again;
  }

  void report(const TarIndexProgress& so_far) const {
    constexpr double kMega = 1e6;
    char bytes[64];
    std::snprintf(bytes, sizeof bytes, ", %.0f of %.0f MB",
                  static_cast<double>(so_far.bytes_done) / kMega,
                  static_cast<double>(so_far.bytes) / kMega);
    options_.progress(so_far.samples, "indexed " + std::to_string(so_far.shards_done) + " of " +
                                          counted(so_far.shards, "shard") + bytes);
  }

  void tell_skipped(const SkippedCounts& skipped) {
    std::string text;
    for (std::size_t i = 0; i < skipped.size(); ++i) {
      const auto reason = static_cast<Skipped>(i);
      if (skipped[i] == 0 || reason == Skipped::kDirectory) continue;
      text += (text.empty() ? "" : ", ") + std::to_string(skipped[i]) + " " +
              std::string(skipped_name(reason));
    }
    if (!text.empty()) warn("left out of the shards of " + spec_.shards.front() + ": " + text);
  }

  Status name_fields(ShardData& data) const {
    const TarIndex& index = *data.dataset->index;
    if (index.parts() > kMostPieces)
      return {Code::kInvalidArgument, "source.webdataset.fields: " + std::to_string(index.parts()) +
                                          " parts, and a sample may have " +
                                          std::to_string(kMostPieces)};
    for (std::size_t part = 0; part < spec_.parts.size(); ++part) {
      const std::vector<std::string>& suffixes = spec_.parts[part].suffixes;
      data.fields.push_back({.name = spec_.parts[part].field,
                             .index = part,
                             .text = std::all_of(suffixes.begin(), suffixes.end(), is_text_suffix),
                             .max_bytes = index.max_bytes()[part]});
    }
    for (std::size_t column = 0; column < index.values().size(); ++column) {
      const Columns::Info& info = index.values().info(column);
      const bool classes = column < spec_.labels.size() && spec_.classes &&
                           is_class(spec_.labels[column].suffixes.front());
      data.fields.push_back({.name = info.name,
                             .kind = SourceField::Kind::kValue,
                             .index = column,
                             .type = info.type,
                             .classes = classes,
                             .max_bytes = info.max_bytes});
    }
    // In the order in which IndexQuery has them.
    std::size_t presence = spec_.labels.size() + spec_.index.size();
    const auto note = [&](const auto& fields) {
      for (const auto& field : fields) {
        if (!field.optional) continue;
        const auto optional =
            std::find_if(data.fields.begin(), data.fields.end(),
                         [&](const SourceField& other) { return other.name == field.field; });
        optional->optional = true;
        optional->presence = presence++;
      }
    };
    note(spec_.parts);
    note(spec_.labels);
    note(spec_.index);
    return {};
  }

  const WebdatasetSpec& spec_;
  SourceOptions& options_;
  const std::shared_ptr<const Access> access_;
};

}  // namespace

Result<std::unique_ptr<Source>> open_webdataset(const WebdatasetSpec& spec, SourceOptions options) {
  return ShardsOpener(spec, options).open();
}

}  // namespace spdld::source
