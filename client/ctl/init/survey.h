// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/foreign_names.h"
#include "ctl/init/draft.h"

// What lies at a path, looked at with the rights of this process. All of this throws Failure
// (kWrongUsage), which names the path, what is wrong with it and the way out.
namespace spdld::ctl {

// What `init` makes of a folder, a tar shard, a table or an annotation file. `root`: what a table
// or annotations name files relative to; without it, that is looked for.
Draft survey(const std::string& path, const std::optional<std::string>& root);
// The same of what lies at `path` for validation, beside what training was drafted of.
Draft survey_validation(const std::string& path, const std::optional<std::string>& root,
                        const Draft& training);

// The kinds; `path` is absolute. `within`: only what lies in this folder below `path`, if it is not
// empty.
Draft survey_folder(const std::string& path, const std::string& within = {});
Draft survey_shard(const std::string& path);
// `names`: files in `folder`, sorted.
Draft survey_shards(const std::string& folder, const std::vector<std::string>& names);
Draft survey_table(const std::string& path, const std::optional<std::string>& root);
Draft survey_coco(const std::string& path, const std::optional<std::string>& root);

// The format that a file has of those that are not read, by its name or content. Null: none.
const ForeignFormat* foreign_at(const std::string& path);
// By its ending: what may be decoded of it.
std::optional<Draft::Kind> media_kind(std::string_view name);
bool is_image_name(std::string_view name);
// A file of that kind: "image", "file of sound".
std::string media_noun(Draft::Kind kind);
// By its ending: whether it is a compressed tar.
bool is_packed_tar_name(std::string_view name);
// Behind the last dot, in small letters.
std::string ending_of(std::string_view name);
// The command that unpacks a compressed tar: "gunzip -k".
std::string unpacking_command(std::string_view name);
[[noreturn]] void fail_packed(const std::string& path);

// The directory that all of `names` are relative to: `root` if it is given, else that of `file`,
// the one above or one that lies near. Nothing: none of those has them all.
std::optional<std::string> find_root(const std::string& file, const std::vector<std::string>& names,
                                     const std::optional<std::string>& root);

// "cat, dog and 3 more"
std::string listed(const std::vector<std::string>& names, std::size_t most = 8);

}  // namespace spdld::ctl
