// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/kept/kept_classes.h"
#include "source/kept/kept_kind.h"
#include "source/kept/open_values.h"
#include "source/listing/listing.h"

namespace spdld::source {

// The files by name that a source is made of, and their classes in their order. Immutable.
struct FilesDataset {
  std::string id = {};  // names it to KeptListings::open(); empty: it is not kept
  std::shared_ptr<const Listing> listing = nullptr;
  std::vector<std::string> classes = {};
  ListingMemory::SharePtr memory = nullptr;  // that the classes count in
};
using FilesDatasetPtr = std::shared_ptr<const FilesDataset>;

// The listings of files that were applied (source/listing/listing_file.h). Sources with the same
// listing share it in memory.
//
// Owned by KeptDatasets; thread-safe. A file that cannot be written or read is an error of that
// call alone.
class KeptListings final : public KeptKind {
 public:
  // `directory` is made when it is needed.
  KeptListings(const std::string& directory, const KeptClasses& classes)
      : directory_(directory), classes_(classes) {}

  // The listing that was kept last for `key`: kNotFound if there is none. One that is not open
  // counts in `memory`: kResourceExhausted if that has no room for it.
  Result<std::shared_ptr<const Listing>> latest(const std::string& key,
                                                ListingMemory::SharePtr memory);
  // Keeps it for latest().
  Status keep(const std::string& key, const std::shared_ptr<const Listing>& listing);
  // The dataset of a listing that was kept for `key`, whose items have `classes`, if they are
  // `labelled`. Unless these could be kept as well, which `kept` says, its id is good as long as it
  // is in use.
  FilesDatasetPtr add(const std::string& key, std::shared_ptr<const Listing> listing,
                      std::vector<std::string> classes, bool labelled,
                      ListingMemory::SharePtr memory, Status& kept);
  // What is not open counts in shares of this user. An error names the file: kNotFound, there is
  // none; kDataLoss, it is damaged; kResourceExhausted, they have no room for it.
  Result<FilesDatasetPtr> open(const std::string& id, ListingMemory& memory, uid_t uid);

  void add_open(std::set<std::string>& ids) override { datasets_.add_names(ids); }
  void add_files(const std::string& id, std::set<std::string>& files) const override;

 private:
  std::string path(const std::string& name) const;

  const std::string directory_;
  const KeptClasses& classes_;
  OpenValues<Listing> listings_;  // by KEY-DATA
  OpenValues<FilesDataset> datasets_;
};

}  // namespace spdld::source
