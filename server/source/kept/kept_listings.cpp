// SPDX-License-Identifier: Apache-2.0
#include "source/kept/kept_listings.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "source/listing/classes.h"
#include "source/listing/listing_file.h"

namespace spdld::source {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListing = ".idx";

}  // namespace

std::string KeptListings::path(const std::string& name) const {
  return directory_ + "/" + name + std::string(kListing);
}

Result<std::shared_ptr<const Listing>> KeptListings::latest(const std::string& key,
                                                            ListingMemory::SharePtr memory) {
  const std::string prefix = listed_id(key, "");
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
  std::error_code ignored;  // as if it were listed now: it is not collected for a while
  fs::last_write_time(*newest, fs::file_time_type::clock::now(), ignored);
  const std::string name = newest->stem().string();
  if (auto known = listings_.find(name)) return known;
  SPDLD_ASSIGN(Listing listing, ListingFile::load(key, newest->string()));
  SPDLD_TRY(memory->resize(listing.memory_bytes()).with_context(newest->string()));
  listing.memory = std::move(memory);
  return listings_.share(name, std::make_shared<const Listing>(std::move(listing)));
}

Status KeptListings::keep(const std::string& key, const std::shared_ptr<const Listing>& listing) {
  const std::string name = listed_id(key, listing->digest());
  // The same names, and the directories' stamps as they are now.
  listings_.put(name, listing);
  return ListingFile::save(*listing, key, path(name));
}

FilesDatasetPtr KeptListings::add(const std::string& key, std::shared_ptr<const Listing> listing,
                                  std::vector<std::string> classes, bool labelled,
                                  ListingMemory::SharePtr memory, Status& kept) {
  std::string id = listed_id(key, listing->digest());
  if (labelled) kept = classes_.keep(classes, id);
  return datasets_.put(
      id, std::make_shared<const FilesDataset>(FilesDataset{.id = id,
                                                            .listing = std::move(listing),
                                                            .classes = std::move(classes),
                                                            .memory = std::move(memory)}));
}

Result<FilesDatasetPtr> KeptListings::open(const std::string& id, ListingMemory& memory,
                                           uid_t uid) {
  const auto parts = parse_listed_id(id);
  if (!parts) return error(Code::kDataLoss, "'" + id + "' names no listing");
  if (FilesDatasetPtr known = datasets_.find(id)) return known;
  FilesDataset dataset{.id = id, .listing = listings_.find(parts->data)};
  if (dataset.listing == nullptr) {
    const std::string file = path(parts->data);
    SPDLD_ASSIGN(Listing listing, ListingFile::load(file));
    if (listing.digest() != parts->data_digest)
      return error(Code::kDataLoss, file + " holds another listing than its name says");
    listing.memory = memory.share(uid);
    SPDLD_TRY(listing.memory->resize(listing.memory_bytes()).with_context(file));
    dataset.listing =
        listings_.share(parts->data, std::make_shared<const Listing>(std::move(listing)));
  }
  SPDLD_ASSIGN(dataset.classes, classes_.load(*parts));
  dataset.memory = memory.share(uid);
  SPDLD_TRY(dataset.memory->resize(memory_bytes(dataset.classes)).with_context("its classes"));
  return datasets_.put(id, std::make_shared<const FilesDataset>(std::move(dataset)));
}

void KeptListings::add_files(const std::string& id, std::set<std::string>& files) const {
  const auto parts = parse_listed_id(id);
  if (!parts) return;
  files.insert(parts->data + std::string(kListing));
  classes_.add_file(*parts, files);
}

}  // namespace spdld::source
