// SPDX-License-Identifier: Apache-2.0
#include "source/kept_listings.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "source/bytes/digest_text.h"
#include "source/bytes/unused_files.h"
#include "source/bytes/whole_file.h"
#include "source/file/disk.h"
#include "source/joined_source.h"
#include "source/listing/listing_file.h"
#include "source/media_index/media_index_build.h"
#include "source/tar/tar_index_build.h"

namespace spdld::source {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListing = ".idx";
constexpr std::string_view kTable = ".cols";
constexpr std::string_view kClasses = ".classes";
constexpr std::string_view kTar = "tar-";  // ids of shards begin so
constexpr std::string_view kMedia = "+media-";
constexpr std::size_t kKeyDigits = 16;
constexpr std::size_t kDigits = 32;  // of the other digests

std::string class_bytes(const std::vector<std::string>& classes) {
  std::string bytes;
  for (const std::string& name : classes) {
    bytes += name;
    bytes += '\0';
  }
  return bytes;
}

std::string listing_name(const std::string& key, const Listing& listing) {
  return short_digest_text(key) + "-" + listing.digest();
}

// An id's parts: ids come from records, which may say anything.
struct Parts {
  std::string listing;  // the file's name without its ending
  std::string listing_digest;
  std::string classes;  // empty: none
};

std::optional<Parts> parts_of(const std::string& id) {
  constexpr std::size_t kListingEnd = kKeyDigits + 1 + kDigits;
  const bool labelled = id.size() == kListingEnd + 1 + kDigits;
  if (id.size() != kListingEnd && !labelled) return std::nullopt;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const bool dash = i == kKeyDigits || i == kListingEnd;
    const bool hex = (id[i] >= '0' && id[i] <= '9') || (id[i] >= 'a' && id[i] <= 'f');
    if (dash ? id[i] != '-' : !hex) return std::nullopt;
  }
  return Parts{.listing = id.substr(0, kListingEnd),
               .listing_digest = id.substr(kKeyDigits + 1, kDigits),
               .classes = labelled ? id.substr(kListingEnd + 1) : ""};
}

}  // namespace

ClipsDataset split_clips_dataset(const std::string& id) {
  const std::size_t at = id.rfind(kMedia);
  if (at == std::string::npos) return {.items = id, .media = {}};
  return {.items = id.substr(0, at), .media = id.substr(at + kMedia.size())};
}

std::string clips_dataset(const std::string& items, const std::string& media) {
  return items.empty() || media.empty() ? std::string() : items + std::string(kMedia) + media;
}

bool KeptListings::same_data(const std::string& id, const std::string& other) {
  if (id.starts_with(kTar) && other.starts_with(kTar))
    return same_tar_data(id.substr(kTar.size()), other.substr(kTar.size()));
  const auto a = parts_of(id);
  const auto b = parts_of(other);
  return a && b && a->listing_digest == b->listing_digest && a->classes == b->classes;
}

std::shared_ptr<const Listing> KeptListings::in_memory(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = listings_.find(name);
  return found == listings_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<const Listing> KeptListings::share(const std::string& name, Listing listing) {
  auto loaded = std::make_shared<const Listing>(std::move(listing));
  MutexLock lock(mutex_);
  std::weak_ptr<const Listing>& entry = listings_[name];
  if (auto other = entry.lock()) return other;
  entry = loaded;
  return loaded;
}

DatasetPtr KeptListings::add(const std::string& key, std::shared_ptr<const Listing> listing,
                             std::vector<std::string> classes, bool labelled, Status& kept) {
  std::string id = listing_name(key, *listing);
  if (labelled) kept = add_classes(classes, id);
  auto dataset = std::make_shared<const Dataset>(
      Dataset{.id = id, .listing = std::move(listing), .classes = std::move(classes)});
  MutexLock lock(mutex_);
  datasets_[id] = dataset;
  return dataset;
}

DatasetPtr KeptListings::add_table(const std::string& key, KeptColumns table,
                                   std::vector<std::string> classes, Status& kept) {
  std::string id = short_digest_text(key) + "-" + table.columns.digest();
  const std::string file = path(id + std::string(kTable));
  Status with_classes;
  if (!classes.empty()) with_classes = add_classes(classes, id);
  // Its columns are the same, if its time is, too.
  if (DatasetPtr known = dataset_in_memory(id);
      known && same_size_and_time(known->table->file, table.file)) {
    kept = with_classes;
    return known;
  }
  kept = save_columns(table, file);
  if (kept.ok()) kept = with_classes;
  auto dataset = std::make_shared<const Dataset>(
      Dataset{.id = id,
              .table = std::make_shared<const KeptColumns>(std::move(table)),
              .classes = std::move(classes)});
  MutexLock lock(mutex_);
  datasets_[id] = dataset;
  return dataset;
}

Status KeptListings::add_classes(const std::vector<std::string>& classes, std::string& id) const {
  const std::string bytes = class_bytes(classes);
  const std::string digest = digest_text(bytes);
  id += "-" + digest;
  return keep_classes(digest, bytes);
}

Result<std::vector<std::string>> KeptListings::load_classes(const std::string& digest) const {
  const std::string file = path(digest + std::string(kClasses));
  SPDLD_ASSIGN(const std::string bytes, read_whole_file(file));
  if (digest_text(bytes) != digest)
    return error(Code::kDataLoss, file + " is damaged: it is not what was written");
  std::vector<std::string> classes;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\0', begin), bytes.size());
    classes.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return classes;
}

Result<DatasetPtr> KeptListings::open(const std::string& id) {
  const auto parts = parts_of(id);
  if (!parts) return error(Code::kDataLoss, "'" + id + "' names no listing");
  if (DatasetPtr known = dataset_in_memory(id)) return known;
  Dataset dataset{.id = id, .listing = in_memory(parts->listing)};
  if (dataset.listing == nullptr) {
    const std::string table = path(parts->listing + std::string(kTable));
    Result<KeptColumns> columns = load_columns(table);
    // Where there is no table, a listing was kept.
    if (!columns && columns.error().code() != Code::kNotFound)
      return tl::unexpected(columns.error());
    if (columns && columns->columns.digest() != parts->listing_digest)
      return error(Code::kDataLoss, table + " holds another table than its name says");
    if (columns) dataset.table = std::make_shared<const KeptColumns>(*std::move(columns));
  }
  if (dataset.listing == nullptr && dataset.table == nullptr) {
    const std::string file = path(parts->listing + std::string(kListing));
    SPDLD_ASSIGN(Listing listing, ListingFile::load(file));
    if (listing.digest() != parts->listing_digest)
      return error(Code::kDataLoss, file + " holds another listing than its name says");
    dataset.listing = share(parts->listing, std::move(listing));
  }
  if (!parts->classes.empty()) {
    SPDLD_ASSIGN(dataset.classes, load_classes(parts->classes));
  }
  auto opened = std::make_shared<const Dataset>(std::move(dataset));
  MutexLock lock(mutex_);
  datasets_[id] = opened;
  return opened;
}

Result<std::vector<std::string>> KeptListings::classes_of(const std::string& id) const {
  const auto parts = parts_of(id);
  if (!parts || parts->classes.empty())
    return error(Code::kNotFound, "'" + id + "' names no classes");
  return load_classes(parts->classes);
}

DatasetPtr KeptListings::dataset_in_memory(const std::string& id) {
  MutexLock lock(mutex_);
  const auto known = datasets_.find(id);
  return known == datasets_.end() ? nullptr : known->second.lock();
}

DatasetPtr KeptListings::add_shards(const std::string& name,
                                    std::shared_ptr<const TarIndex> index) {
  const std::string id = name.empty() ? std::string() : std::string(kTar) + name;
  if (DatasetPtr known = id.empty() ? nullptr : dataset_in_memory(id)) return known;
  std::vector<std::string> classes = index->classes();
  auto dataset = std::make_shared<const Dataset>(
      Dataset{.id = id, .shards = std::move(index), .classes = std::move(classes)});
  if (id.empty()) return dataset;
  MutexLock lock(mutex_);
  datasets_[id] = dataset;
  return dataset;
}

Result<DatasetPtr> KeptListings::open_shards(const std::string& id, const WebdatasetSpec& spec) {
  if (!id.starts_with(kTar) || id.find('/') != std::string::npos)
    return error(Code::kDataLoss, "'" + id + "' names no index of shards");
  if (DatasetPtr known = dataset_in_memory(id)) return known;
  const std::string name = id.substr(kTar.size());
  SPDLD_ASSIGN(std::shared_ptr<const TarIndex> index, load_tar_index(spec, tar_directory(), name));
  return add_shards(name, std::move(index));
}

Status KeptListings::collect_tar(const std::set<std::string>& used,
                                 fs::file_time_type::duration grace) {
  std::set<std::string> names;
  const auto need = [&names](const std::string& id) {
    if (id.starts_with(kTar)) names.insert(split_clips_dataset(id).items.substr(kTar.size()));
  };
  std::for_each(used.begin(), used.end(), need);
  const std::set<std::string> open = in_use();
  std::for_each(open.begin(), open.end(), need);
  return collect_tar_indexes(tar_directory(), names, grace);
}

Result<std::shared_ptr<const MediaIndex>> KeptListings::media(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos)
    return error(Code::kDataLoss, "'" + name + "' names no index of media files");
  {
    MutexLock lock(mutex_);
    if (const auto known = media_.find(name); known != media_.end()) {
      if (auto index = known->second.lock()) return index;
    }
  }
  SPDLD_ASSIGN(std::shared_ptr<const MediaIndex> index, load_media_index(media_directory(), name));
  return share_media(name, std::move(index));
}

std::shared_ptr<const MediaIndex> KeptListings::share_media(
    const std::string& name, std::shared_ptr<const MediaIndex> index) {
  if (name.empty()) return index;
  MutexLock lock(mutex_);
  // The one that was made last has the files' stamps as they are now.
  media_[name] = index;
  return index;
}

Status KeptListings::collect_media(const std::set<std::string>& used,
                                   fs::file_time_type::duration grace) {
  std::set<std::string> names;
  for (const std::string& id : used) names.insert(split_clips_dataset(id).media);
  {
    MutexLock lock(mutex_);
    std::erase_if(media_, [](const auto& entry) { return entry.second.expired(); });
    for (const auto& [name, index] : media_) names.insert(name);
  }
  return collect_media_indexes(media_directory(), names, grace);
}

Result<std::shared_ptr<const Listing>> KeptListings::latest(const std::string& key) {
  const std::string prefix = short_digest_text(key) + "-";
  std::optional<fs::path> newest;
  fs::file_time_type written;
  std::error_code failed;
  for (fs::directory_iterator entry(directory_, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kListing)) continue;
    std::error_code gone;
    const fs::file_time_type time = entry->last_write_time(gone);
    if (gone || (newest && time <= written)) continue;
    newest = entry->path();
    written = time;
  }
  if (!newest) return error(Code::kNotFound, "nothing was listed so far");
  std::error_code ignored;  // as if it were listed now: collect() lets it be for a while
  fs::last_write_time(*newest, fs::file_time_type::clock::now(), ignored);
  const std::string name = newest->stem().string();
  if (auto known = in_memory(name)) return known;
  SPDLD_ASSIGN(Listing listing, ListingFile::load(key, newest->string()));
  return share(name, std::move(listing));
}

Status KeptListings::keep(const std::string& key, const std::shared_ptr<const Listing>& listing) {
  const std::string name = listing_name(key, *listing);
  {
    // The same names, and the directories' stamps as they are now.
    MutexLock lock(mutex_);
    listings_[name] = listing;
  }
  return ListingFile::save(*listing, key, path(name + std::string(kListing)));
}

Status KeptListings::keep_classes(const std::string& digest, const std::string& bytes) const {
  const std::string file = path(digest + std::string(kClasses));
  if (const auto kept = read_whole_file(file); kept && *kept == bytes) {
    std::error_code failed;  // as if it were written now: collect() lets it be for a while
    fs::last_write_time(file, fs::file_time_type::clock::now(), failed);
    if (!failed) return {};
  }
  return write_whole_file(file, bytes);
}

std::set<std::string> KeptListings::in_use() {
  MutexLock lock(mutex_);
  std::set<std::string> ids;
  for (const auto& [id, dataset] : datasets_) {
    if (!dataset.expired()) ids.insert(id);
  }
  return ids;
}

Status KeptListings::collect(const std::set<std::string>& used,
                             fs::file_time_type::duration grace) {
  std::set<std::string> needed;
  const auto need_one = [&needed](const std::string& id) {
    const auto parts = parts_of(id);
    if (!parts) return;
    needed.insert(parts->listing + std::string(kListing));
    needed.insert(parts->listing + std::string(kTable));
    needed.insert(parts->classes + std::string(kClasses));
  };
  const auto need = [&need_one](const std::string& id) {
    const std::vector<std::string> ids = split_dataset(id);
    std::for_each(ids.begin(), ids.end(), need_one);
  };
  std::for_each(used.begin(), used.end(), need);
  {
    MutexLock lock(mutex_);
    const auto unused = [](const auto& entry) { return entry.second.expired(); };
    std::erase_if(listings_, unused);
    std::erase_if(datasets_, unused);
    for (const auto& [id, dataset] : datasets_) need(id);
  }
  const auto is_used = [&needed](const fs::path& file) { return needed.contains(file.string()); };
  SPDLD_TRY(remove_unused_files(directory_, is_used, grace));
  SPDLD_TRY(collect_tar(used, grace));
  return collect_media(used, grace);
}

}  // namespace spdld::source
