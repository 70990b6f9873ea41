// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/kept/kept_classes.h"
#include "source/kept/kept_kind.h"
#include "source/kept/kept_listings.h"
#include "source/kept/kept_media_indexes.h"
#include "source/kept/kept_tables.h"
#include "source/kept/kept_tar_indexes.h"

namespace spdld::source {

// The datasets that were applied, each kept in files of its own for as long as anything refers to
// it by its id (source/kept/dataset_id.h): a pipeline that is opened again has the files and the
// class numbers that it had, whatever came or went since.
//
//   file in the directory   part of the id       holds                         read and written by
//   KEY-DATA.idx            KEY-DATA             a listing of files            KeptListings
//   KEY-DATA.cols           KEY-DATA             a table's columns             KeptTables
//   CLASSES.classes         -CLASSES             class names of either         KeptClasses
//   tar/NAME.tarindex       tar-NAME             an index of shards            KeptTarIndexes
//   media/NAME.mediaindex   +media-NAME          the facts of media files      KeptMediaIndexes
//
// Owned by the catalogue of pipelines; thread-safe. A file that cannot be written or read is an
// error of that call alone.
class KeptDatasets {
 public:
  // `directory` is made when it is needed.
  explicit KeptDatasets(const std::string& directory);

  KeptListings& listings() { return listings_; }
  KeptTables& tables() { return tables_; }
  KeptTarIndexes& tar_indexes() { return tar_indexes_; }
  KeptMediaIndexes& media_indexes() { return media_indexes_; }

  // The classes of the listing or table that `id` names, without opening that.
  Result<std::vector<std::string>> classes_of(const std::string& id) const;

  // Whether all files of that dataset are there, whatever they hold.
  bool has(const std::string& id) const;
  // The ids of the datasets that sources have open.
  std::set<std::string> in_use();
  // Removes files that none of the `used` ids names, that no source has open, and that were written
  // `grace` ago: what was listed just now is yet to be referred to.
  Status collect(const std::set<std::string>& used,
                 std::filesystem::file_time_type::duration grace);

 private:
  std::array<KeptKind*, 4> kinds() {
    return {&listings_, &tables_, &tar_indexes_, &media_indexes_};
  }

  const std::string directory_;
  const KeptClasses classes_;
  KeptListings listings_;
  KeptTables tables_;
  KeptTarIndexes tar_indexes_;
  KeptMediaIndexes media_indexes_;
};

}  // namespace spdld::source
