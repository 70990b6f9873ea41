// SPDX-License-Identifier: Apache-2.0
#include "source/table_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "posix/unique_fd.h"
#include "source/bytes/digest_text.h"
#include "source/file/access.h"
#include "source/file/disk.h"
#include "source/file/file_fetcher.h"
#include "source/file/reopening_disk.h"
#include "source/file/root_disk.h"
#include "source/item/item_hashes.h"
#include "source/item/suffixes.h"
#include "source/kept/dataset_id.h"
#include "source/kept/kept_datasets.h"
#include "source/listing/classes.h"

namespace spdld::source {
namespace {

constexpr std::uint64_t kLeastBytes = 8;  // of a row, where all texts or lists are empty
constexpr int kTableFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

// What an applied source is made of: all of it that does not depend on who reads it.
struct TableData {
  TableDatasetPtr dataset;
  std::string file;  // the table
  RootDiskOptions root;
  std::string real_root;  // after symlinks, when it was opened
  std::vector<SourceField> fields;
  std::vector<std::size_t> parts;   // their columns
  std::vector<std::size_t> values;  // their columns
  std::string digest;
  FileFetcher::Options fetcher;
};
using TableDataPtr = std::shared_ptr<const TableData>;

std::string_view text_at(const Columns& columns, std::uint64_t row, std::size_t column) {
  return std::get<std::string_view>(columns.value(row, column));
}

// Of the uris in their order, and of their number.
std::string digest_of(const Columns& columns, const std::vector<std::size_t>& parts) {
  DigestBuilder digest;
  for (std::uint64_t row = 0; row < columns.rows(); ++row) {
    for (const std::size_t part : parts) {
      digest.add(text_at(columns, row, part));
      digest.add(std::string_view("\0", 1));
    }
  }
  const std::uint64_t rows = columns.rows();
  digest.add({reinterpret_cast<const char*>(&rows), sizeof rows});
  return digest.finish();
}

class TableSource final : public Source {
 public:
  TableSource(TableDataPtr data, std::unique_ptr<Disk> disk, ReopeningDisk* root, IoPool& io,
              uid_t reader)
      : data_(std::move(data)),
        columns_(data_->dataset->table.columns),
        origin_("files " + data_->real_root),
        reopening_(root),
        io_(io),
        fetcher_(one_root(data_->real_root, std::move(disk)), io, reader, data_->fetcher) {}

  std::uint64_t size() const override { return columns_.rows(); }
  const std::string& listing_digest() const override { return data_->digest; }
  std::string values_digest() const override { return columns_.digest(); }
  const std::vector<SourceField>& fields() const override { return data_->fields; }
  const std::vector<std::string>& classes() const override { return data_->dataset->classes; }
  std::span<const std::int64_t> category_ids() const override {
    return data_->dataset->table.category_ids;
  }
  std::string dataset() const override { return data_->dataset->id; }
  // By the first file that the row names.
  std::string uri(std::uint64_t item) const override {
    for (std::size_t part = 0; part < data_->parts.size(); ++part) {
      if (has_part(item, part)) return std::string(text_at(columns_, item, data_->parts[part]));
    }
    return "row " + std::to_string(item + 1);
  }
  bool has_part(std::uint64_t item, std::size_t part) const override {
    return !text_at(columns_, item, data_->parts[part]).empty();
  }
  Value value(std::uint64_t item, std::size_t value) const override {
    return columns_.value(item, data_->values[value]);
  }

  Result<FetchState> fetch(std::uint64_t item, std::span<const PartRequest> requests,
                           FetchedItem& out, FetchSink& sink, std::uint64_t token) override {
    lay_out(item, requests, out);
    if (!out.ranges().empty()) return fetcher_.fetch(out, sink, token);
    out.bring_nothing();
    return FetchState::kReady;
  }
  Result<std::unique_ptr<PartBytes>> open_part(std::uint64_t item,
                                               std::size_t part) const override {
    SPDLD_CHECK(has_part(item, part));
    ItemBytes at;
    const PartRequest whole{.part = part};
    lay_out(item, {&whole, 1}, at);
    return fetcher_.open(at);
  }

  std::vector<std::string> suffixes(std::size_t part) const override {
    std::vector<std::string> suffixes;
    for (std::uint64_t item = 0; item < std::min(size(), kMostSeen); ++item)
      add_suffix(text_at(columns_, item, data_->parts[part]), suffixes);
    return suffixes;
  }
  std::string origin() const override { return origin_; }
  std::uint64_t part_key(std::uint64_t item, std::size_t part) const override {
    return source::part_key(text_at(columns_, item, data_->parts[part]), 0, 0);
  }
  Result<std::unique_ptr<Source>> read_by(const Credentials& reader) const override {
    const auto access = std::make_shared<const Access>(data_->root.access, reader);
    // What the table says is told to this reader, too.
    Access::Opened table;
    const Denial denial =
        access->open(AT_FDCWD, data_->file, Access::Links::kFollow, kTableFlags, table);
    if (!Access::is_open_or_gone(denial))
      return tl::unexpected(Access::status(denial, "cannot read", data_->file));
    Result<Root> root = open_root(data_->root.root, *access, data_->root.key);
    if (!root && root.error().code() == Code::kPermissionDenied)
      return tl::unexpected<Status>(root.error());
    auto disk = make_root_disk(data_->root, access, std::move(root));
    ReopeningDisk* const reopening = disk.get();
    return std::make_unique<TableSource>(data_, std::move(disk), reopening, io_, reader.uid);
  }

  void look_again() override {
    if (reopening_ != nullptr) reopening_->look_again();
  }
  bool has_changed() override {
    struct stat info {};
    if (::stat(data_->file.c_str(), &info) != 0) return true;
    const ItemStamp& read = data_->dataset->table.file;
    return !is_as_indexed(stamp_of(info), read);
  }

 private:
  // The file that each request is about.
  void lay_out(std::uint64_t item, std::span<const PartRequest> requests, ItemBytes& out) const {
    out.begin();
    for (const PartRequest& request : requests) {
      if (!has_part(item, request.part)) {
        out.add_place(ItemBytes::absent());
        continue;
      }
      out.add_place({.range = out.ranges().size()});
      FileRange& range = out.add_range();
      range.uri = text_at(columns_, item, data_->parts[request.part]);
      range.listed = false;
      range.offset = request.offset;
      range.size_bytes = request.size_bytes;
      if (request.expected != nullptr) range.expected = *request.expected;
    }
  }

  const TableDataPtr data_;
  const Columns& columns_;  // the dataset's
  const std::string origin_;
  ReopeningDisk* const reopening_;  // the fetcher's
  IoPool& io_;
  FileFetcher fetcher_;
};

class TableOpener {
 public:
  TableOpener(ItemFile file, SourceOptions& options)
      : file_(std::move(file)),
        options_(options),
        access_(std::make_shared<const Access>(options.access, options.reader)) {}

  Result<std::unique_ptr<Source>> open() {
    const bool again = options_.kept != nullptr && !options_.dataset.empty();
    auto data = std::make_shared<TableData>();
    data->root = {.root = file_.root, .key = file_.root_key, .access = options_.access};
    Result<Root> root = options_.from_kept_alone
                            ? not_looked_at(data->root.root)
                            : open_root(data->root.root, *access_, data->root.key);
    // What was applied is opened though its files are not there: they may come back.
    if (!root && (!again || root.error().code() == Code::kPermissionDenied))
      return tl::unexpected<Status>(root.error());
    SPDLD_ASSIGN(data->dataset, again ? reopen() : read());
    data->file = file_.path;
    data->real_root = root ? root->path : data->root.root;
    SPDLD_TRY(name_fields(*data));
    data->digest = digest_of(data->dataset->table.columns, data->parts);
    data->fetcher = FileFetcher::options_of(options_);
    ReopeningDisk* reopening = nullptr;
    if (!options_.disk) {
      auto made = make_root_disk(data->root, access_, std::move(root));
      reopening = made.get();
      options_.disk = std::move(made);
    }
    return std::make_unique<TableSource>(std::move(data), std::move(options_.disk), reopening,
                                         options_.io, options_.reader.uid);
  }

 private:
  Result<TableDatasetPtr> read() {
    SPDLD_ASSIGN(const Access::Opened file, access_->open(file_.path, kTableFlags, "cannot read"));
    const ItemStamp before = stamp_of(file.info);
    const ListingMemory::SharePtr memory = options_.share();
    Result<ItemRows> rows =
        file_.read(read_descriptor(file.fd.get(), file_.path, file_.max_bytes, options_.stop),
                   *access_, options_, memory);
    struct stat after {};
    if (::fstat(file.fd.get(), &after) == 0 && stamp_of(after) != before)
      return error(Code::kUnavailable,
                   file_.path + " changed while it was read; try again when it is complete");
    if (!rows) return tl::unexpected<Status>(rows.error());
    const std::uint64_t count = rows->columns.rows();
    if (count > options_.max_items)
      return error(Code::kResourceExhausted,
                   file_.path + " has " + std::to_string(count) + " rows, more than the " +
                       std::to_string(options_.max_items) + " that a dataset may have");
    SPDLD_TRY(memory->resize(rows->columns.memory_bytes() + memory_bytes(rows->classes))
                  .with_context(file_.path));
    if (options_.progress) options_.progress(count, "");
    KeptColumns kept{.columns = std::move(rows->columns),
                     .category_ids = std::move(rows->category_ids),
                     .file = before};
    if (options_.kept == nullptr)
      return std::make_shared<const TableDataset>(TableDataset{
          .table = std::move(kept), .classes = std::move(rows->classes), .memory = memory});
    Status saved;
    TableDatasetPtr dataset = options_.kept->tables().add(file_.key, std::move(kept),
                                                          std::move(rows->classes), memory, saved);
    if (!saved.ok() && options_.warnings != nullptr)
      options_.warnings->push_back(
          "what was read of " + file_.path +
          " was not kept and will be read again after a restart: " + saved.message());
    return dataset;
  }

  Result<TableDatasetPtr> reopen() {
    if (options_.from_kept_alone)
      return options_.kept->tables().open(options_.dataset, options_.share());
    // Who may not read the file is not told what stood in it.
    Access::Opened file;
    const Denial denial =
        access_->open(AT_FDCWD, file_.path, Access::Links::kFollow, kTableFlags, file);
    if (!Access::is_open_or_gone(denial))
      return tl::unexpected(Access::status(denial, "cannot read", file_.path));
    Result<TableDatasetPtr> kept = options_.kept->tables().open(options_.dataset, options_.share());
    if (kept || kept.error().code() == Code::kResourceExhausted) return kept;
    const std::string why = "what was applied cannot be opened: " + kept.error().message();
    const std::string way_out =
        "; bring that file back, or apply the pipeline again and start its jobs anew";
    // They may have come from another pipeline.
    if (Result<std::vector<std::string>> classes = options_.kept->classes_of(options_.dataset))
      options_.classes = *std::move(classes);
    const Result<TableDatasetPtr> again = read();
    if (!again)
      return error(Code::kDataLoss, why + ", nor read again: " + again.error().message() + way_out);
    if (!is_same_data((*again)->id, options_.dataset))
      return error(Code::kDataLoss,
                   why + ", and " + file_.path + " says otherwise by now" + way_out);
    return again;
  }

  Status name_fields(TableData& data) const {
    const Columns& columns = data.dataset->table.columns;
    const auto is_part = [this](const std::string& name) {
      return std::find(file_.parts.begin(), file_.parts.end(), name) != file_.parts.end();
    };
    SPDLD_TRY(FileFetcher::check_parts(file_.parts.size(), file_.path));
    for (std::size_t column = 0; column < columns.size(); ++column) {
      const Columns::Info& info = columns.info(column);
      const bool part = is_part(info.name);
      std::vector<std::size_t>& of_kind = part ? data.parts : data.values;
      data.fields.push_back(
          {.name = info.name,
           .kind = part ? SourceField::Kind::kPart : SourceField::Kind::kValue,
           .index = of_kind.size(),
           .type = info.type,
           .classes = !part && info.name == file_.class_field,
           .max_bytes =
               part ? std::nullopt : std::optional(std::max(info.max_bytes, kLeastBytes))});
      of_kind.push_back(column);
    }
    for (SourceField& field : data.fields) {
      if (!file_.optional.contains(field.name)) continue;
      const auto present = std::find_if(
          data.fields.begin(), data.fields.end(),
          [&field](const SourceField& other) { return other.name == field.name + "_present"; });
      if (present == data.fields.end()) break;
      field.optional = true;
      field.presence = present->index;
    }
    // What was kept may be of a daemon that made other columns of the same text.
    if (data.parts.size() == file_.parts.size() && !data.parts.empty()) return {};
    return {Code::kDataLoss,
            "what was applied has other columns than " + file_.path + " now: apply it again"};
  }

  const ItemFile file_;
  SourceOptions& options_;
  const std::shared_ptr<const Access> access_;
};

}  // namespace

Result<std::unique_ptr<Source>> open_table(ItemFile file, SourceOptions options) {
  return TableOpener(std::move(file), options).open();
}

}  // namespace spdld::source
