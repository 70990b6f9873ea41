// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spdld::source {

// The ids of datasets: texts that name what was applied, so that it can be opened again. They stand
// in records that outlive the daemon, which may say anything.
//
//   KEY-DATA[-CLASSES]   listed files, or a table: KEY is the hash of what was listed or read and
//                        how, DATA the digest of the listing or of the columns, CLASSES the digest
//                        of the class names, where items have classes
//   tar-NAME             shards: NAME is their index's
//   ID+ID                several datasets, one behind the other
//   ID+media-NAME        clips of ID: NAME is the media index's
//
// Values; any thread.

struct ListedId {
  std::string data;         // KEY-DATA
  std::string data_digest;  // DATA
  std::string classes;      // CLASSES; empty: none
};
// Nothing: `id` is no such id.
std::optional<ListedId> parse_listed_id(const std::string& id);
// KEY-DATA of what was listed or read as `key` says.
std::string listed_id(const std::string& key, const std::string& data_digest);

// The name of the index of shards; nothing: `id` is no id of shards.
std::optional<std::string> shards_name(const std::string& id);
std::string shards_id(const std::string& name);

// The ids of several datasets that stand one behind the other.
std::string join_datasets(const std::vector<std::string>& ids);
// The other way round; of another id that one.
std::vector<std::string> split_dataset(std::string_view id);

// The id of a source of clips, taken apart: that of the source that the clips are of, and the name
// of the media index; empty: it has none.
struct ClipsDataset {
  std::string items;
  std::string media;
};
ClipsDataset split_clips_dataset(const std::string& id);
// The id of clips of nothing, which names the media index alone.
std::string media_dataset(const std::string& media);
// Empty if one of them is: then it is not kept.
std::string clips_dataset(const std::string& items, const std::string& media);

// Whether both ids mean the same files and classes, wherever these were listed.
bool is_same_data(const std::string& id, const std::string& other);

}  // namespace spdld::source
