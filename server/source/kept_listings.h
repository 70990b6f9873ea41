// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "source/listing/listing.h"
#include "source/media_index/media_index.h"
#include "source/table/columns_file.h"
#include "source/tar/tar_index.h"

namespace spdld::source {

// The id of a source of clips, taken apart: that of the source that the clips are of, and the name
// of the media index; empty: it has none.
struct ClipsDataset {
  std::string items;
  std::string media;
};
ClipsDataset split_clips_dataset(const std::string& id);
std::string clips_dataset(const std::string& items, const std::string& media);

// What a source is made of: the files by name, what a table says of them, or the samples of shards;
// and the classes in their order. Immutable.
struct Dataset {
  std::string id = {};  // names it to KeptListings::open(); empty: it is not kept
  // One of them.
  std::shared_ptr<const Listing> listing = nullptr;
  std::shared_ptr<const KeptColumns> table = nullptr;
  std::shared_ptr<const TarIndex> shards = nullptr;
  std::vector<std::string> classes = {};
};
using DatasetPtr = std::shared_ptr<const Dataset>;

// The listings that were applied, each kept by its digest in a file of its own for as long as
// anything refers to it: a pipeline that is opened again has the files and the class numbers that
// it had, whatever came or went since. Sources with the same listing share it in memory.
//
//   DIRECTORY/KEY-LISTING.idx   a listing (source/listing/listing_file.h); KEY: hash of what was
//   listed and
//                               how, LISTING: its digest
//   DIRECTORY/KEY-TABLE.cols    a table's columns (source/table/columns_file.h); TABLE: their
//   digest DIRECTORY/CLASSES.classes   class names in their order, each ended by a zero byte;
//   CLASSES: the
//                               digest of these bytes
//
//   DIRECTORY/tar/NAME.tarindex an index of shards (source/tar/tar_index_build.h)
//   DIRECTORY/media/NAME.mediaindex  what media files hold (source/media_index/media_index_build.h)
//
// An id is KEY-LISTING, or KEY-LISTING-CLASSES where items have classes; tar-NAME of shards. Of a
// source of clips it is followed by +media-NAME.
// Thread-safe; owned by
// whoever opens sources. A file that cannot be written or read is an error of that call alone.
class KeptListings {
 public:
  // `directory` is made when it is needed.
  explicit KeptListings(std::string directory) : directory_(std::move(directory)) {}

  // The listing that was kept last for `key`: kNotFound if there is none.
  Result<std::shared_ptr<const Listing>> latest(const std::string& key) SPDLD_EXCLUDES(mutex_);
  // Keeps it for latest().
  Status keep(const std::string& key, const std::shared_ptr<const Listing>& listing)
      SPDLD_EXCLUDES(mutex_);
  // The dataset of a listing that was kept for `key`, whose items have `classes`, if any. Unless
  // these could be kept as well, which `kept` says, its id is good as long as it is in use.
  DatasetPtr add(const std::string& key, std::shared_ptr<const Listing> listing,
                 std::vector<std::string> classes, bool labelled, Status& kept)
      SPDLD_EXCLUDES(mutex_);
  // The same of a table, which is kept by this call. Unless that was possible, which `kept` says,
  // its id is good as long as it is in use.
  DatasetPtr add_table(const std::string& key, KeptColumns table, std::vector<std::string> classes,
                       Status& kept) SPDLD_EXCLUDES(mutex_);
  // The dataset of an index that lies in tar_directory() under that name; empty: it is not kept.
  DatasetPtr add_shards(const std::string& name, std::shared_ptr<const TarIndex> index)
      SPDLD_EXCLUDES(mutex_);
  std::string tar_directory() const { return path("tar"); }
  // An error names the file: kNotFound, there is none; kDataLoss, it is damaged. Not for shards.
  Result<DatasetPtr> open(const std::string& id) SPDLD_EXCLUDES(mutex_);
  // The classes alone of what open() would open.
  Result<std::vector<std::string>> classes_of(const std::string& id) const;
  // The shards' index that was applied; `spec` as it was then.
  Result<DatasetPtr> open_shards(const std::string& id, const WebdatasetSpec& spec)
      SPDLD_EXCLUDES(mutex_);
  std::string media_directory() const { return path("media"); }
  // The index of media files of that name, as load_media_index(); sources share it in memory.
  Result<std::shared_ptr<const MediaIndex>> media(const std::string& name) SPDLD_EXCLUDES(mutex_);
  // The same of one that was just made and lies in media_directory(); an empty name: it is not
  // kept.
  std::shared_ptr<const MediaIndex> share_media(const std::string& name,
                                                std::shared_ptr<const MediaIndex> index)
      SPDLD_EXCLUDES(mutex_);
  // Whether both ids mean the same files and classes, wherever these were listed.
  static bool same_data(const std::string& id, const std::string& other);

  // The ids of what sources have open.
  std::set<std::string> in_use() SPDLD_EXCLUDES(mutex_);
  // Removes files that none of the `used` ids names, that no source has open, and that were written
  // `grace` ago: what was listed just now is yet to be referred to.
  Status collect(const std::set<std::string>& used, std::filesystem::file_time_type::duration grace)
      SPDLD_EXCLUDES(mutex_);

 private:
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  Status keep_classes(const std::string& digest, const std::string& bytes) const;
  // With the classes' digest, if there are any.
  Status add_classes(const std::vector<std::string>& classes, std::string& id) const;
  Result<std::vector<std::string>> load_classes(const std::string& digest) const;
  // By file name without its ending.
  std::shared_ptr<const Listing> in_memory(const std::string& name) SPDLD_EXCLUDES(mutex_);
  std::shared_ptr<const Listing> share(const std::string& name, Listing listing)
      SPDLD_EXCLUDES(mutex_);
  DatasetPtr dataset_in_memory(const std::string& id) SPDLD_EXCLUDES(mutex_);
  Status collect_media(const std::set<std::string>& used,
                       std::filesystem::file_time_type::duration grace) SPDLD_EXCLUDES(mutex_);
  Status collect_tar(const std::set<std::string>& used,
                     std::filesystem::file_time_type::duration grace);

  const std::string directory_;
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<const Listing>> listings_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<const Dataset>> datasets_ SPDLD_GUARDED_BY(mutex_);  // by id
  std::map<std::string, std::weak_ptr<const MediaIndex>> media_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::source
