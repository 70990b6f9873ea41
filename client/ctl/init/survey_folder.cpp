// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/init/survey.h"
#include "ctl/swap_options.h"

namespace spdld::ctl {
namespace {

namespace fs = std::filesystem;
using Kind = Draft::Kind;

constexpr std::uint64_t kMaxEntries = 200'000;
constexpr std::uint64_t kSounds = 8;  // whole files of a batch

// The files of one kind below a folder.
struct FolderFiles {
  std::uint64_t count = 0;
  bool on_top = false;                                // some lie in the folder itself
  std::set<std::string> directories = {};             // the others, by their top-level ones
  std::map<std::string, std::uint64_t> endings = {};  // as they are spelled
  std::string first = {};                             // one of them, by its path
};

// What lies below a folder; names of top-level entries.
struct Folder {
  std::vector<std::string> shards = {};  // at the top
  std::vector<std::string> tables = {};  // at the top, and .json files
  std::set<std::string> directories_of_shards = {};
  std::map<Kind, FolderFiles> media = {};
  std::uint64_t others = 0;
  std::string other = {};                                   // one of them, by its path
  std::string packed = {};                                  // a compressed tar
  std::map<std::string, std::uint64_t> packed_on_top = {};  // such, by their endings: ".tar.gz"
  bool whole = true;                                        // all of it was looked at
};

void add_file(const fs::path& relative, Folder& folder) {
  const std::string name = relative.filename().string();
  const bool on_top = !relative.has_parent_path();
  const std::string top = relative.begin()->string();
  const std::string ending = ending_of(name);
  if (const std::optional<Kind> kind = media_kind(name)) {
    FolderFiles& files = folder.media[*kind];
    ++files.count;
    ++files.endings[name.substr(name.rfind('.') + 1)];
    if (on_top) {
      files.on_top = true;
    } else {
      files.directories.insert(top);
    }
    if (files.first.empty()) files.first = relative.string();
    return;
  }
  ++folder.others;
  if (folder.other.empty()) folder.other = relative.string();
  if (ending == "tar") {
    if (on_top) {
      folder.shards.push_back(name);
    } else {
      folder.directories_of_shards.insert(relative.parent_path().string());
    }
  }
  if (is_packed_tar_name(name)) {
    if (folder.packed.empty()) folder.packed = relative.string();
    const std::string before = name.substr(0, name.size() - ending.size() - 1);
    if (on_top) ++folder.packed_on_top[(ending_of(before) == "tar" ? ".tar." : ".") + ending];
  }
  if (on_top && (ending == "csv" || ending == "tsv" || ending == "jsonl" || ending == "json"))
    folder.tables.push_back(name);
}

Folder look(const std::string& path) {
  Folder folder;
  std::error_code failure;
  const fs::recursive_directory_iterator end;
  constexpr auto kOptions = fs::directory_options::follow_directory_symlink |
                            fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator each(path, kOptions, failure);
  if (failure)
    throw Failure(kWrongUsage,
                  fmt::format("cannot list {}: {}", printable(path), failure.message()));
  std::uint64_t entries = 0;
  for (; each != end; each.increment(failure)) {
    if (failure || ++entries > kMaxEntries) {
      folder.whole = false;
      break;
    }
    std::error_code unknown;
    const bool hidden = each->path().filename().native().starts_with('.');
    if (hidden && each->is_directory(unknown)) each.disable_recursion_pending();
    if (!hidden && each->is_regular_file(unknown))
      add_file(each->path().lexically_relative(path), folder);
  }
  std::sort(folder.shards.begin(), folder.shards.end());
  std::sort(folder.tables.begin(), folder.tables.end());
  return folder;
}

std::string init_of(const fs::path& path) {
  return shell_command({"spdlctl", "init", path.string()});
}

bool is_split(const std::string& name) {
  constexpr std::array<std::string_view, 9> kSplits{
      "train", "training", "val", "valid", "validation", "test", "testing", "eval", "dev"};
  return std::find(kSplits.begin(), kSplits.end(), name) != kSplits.end();
}

// Why there is nothing to write of a folder without media files and shards.
[[noreturn]] void fail_empty(const std::string& path, const Folder& folder) {
  if (!folder.packed.empty()) fail_packed(path + "/" + folder.packed);
  const std::string shown = printable(path);
  if (!folder.directories_of_shards.empty())
    throw Failure(kWrongUsage,
                  fmt::format("{} has no .tar shards itself, but its folder {} has; name that: {}",
                              shown, printable(*folder.directories_of_shards.begin()),
                              init_of(fs::path(path) / *folder.directories_of_shards.begin())));
  if (!folder.tables.empty())
    throw Failure(
        kWrongUsage,
        fmt::format("{} has neither images, videos, sound nor .tar shards, but {}; name it: {}",
                    shown, printable(folder.tables.front()),
                    init_of(fs::path(path) / folder.tables.front())));
  throw Failure(
      kWrongUsage,
      fmt::format(
          "below {} there are neither images (jpg, png, webp, gif, bmp, tiff, avif), videos "
          "(mp4, m4v, mov, mkv, webm, avi), sound (wav, flac, mp3, m4a, aac, ogg, opus) nor .tar "
          "shards{}; name a folder that has them",
          shown,
          folder.other.empty() ? ": no file at all"
                               : ", but files such as " + printable(folder.other)));
}

// "**/*.jpg", "**/*.{JPEG,png}"
std::string pattern_of(const FolderFiles& files) {
  std::string endings;
  for (const auto& [ending, count] : files.endings)
    endings += (endings.empty() ? "" : ",") + ending;
  return files.endings.size() == 1 ? "**/*." + endings : "**/*.{" + endings + "}";
}

// "1 image", "3 files of sound"
std::string counted_media(Kind kind, std::uint64_t count) {
  const std::string one = media_noun(kind);
  return counted(count, one, kind == Kind::kSound ? "files of sound" : one + "s");
}

// What most of the files are. Videos come first where others are as many: pictures and sound beside
// them are made of them.
Kind most_of(const Folder& folder) {
  return std::max_element(
             folder.media.begin(), folder.media.end(),
             [](const auto& a, const auto& b) { return a.second.count < b.second.count; })
      ->first;
}

// The lines of a source of so many files that say what a sample of a file is; 0: that is not known.
std::vector<std::string> parts_of_files(Kind kind, std::uint64_t items) {
  switch (kind) {
    case Kind::kVideos:
      return {
          "# Items are clips of the videos. Those that cannot be read are left out, and counted.",
          "clips:",
          "  frames: \"${frames}\"",
          "  stride: \"${stride}\"         # from one frame to the next, in frames of the file",
          "  sampling: random            # one of each video, anew each epoch; or uniform",
          "  end: loop                   # a video that is too short begins anew"};
    case Kind::kSound:
      return {
          "# Items are windows of the files, with silence behind their ends. For whole files write",
          "# windows: {sampling: whole, max_seconds: 60}",
          "# and let batches be filled up to their longest row:",
          fmt::format("# batch: {{size: {}, collate: {{audio: {{pad: 0}}}}}}",
                      items == 0 ? kSounds : std::min(items, kSounds)),
          "windows: {seconds: \"${seconds}\", end: pad}"};
    case Kind::kImages: break;
  }
  return {};
}

}  // namespace

Draft survey_folder(const std::string& path) {
  const Folder folder = look(path);
  if (!folder.shards.empty()) {
    Draft draft = survey_shards(path, folder.shards);
    for (const auto& [ending, count] : folder.packed_on_top)
      draft.seen.push_back(fmt::format("{} {} beside them are not read: {} them first", count,
                                       ending, unpacking_command(ending)));
    return draft;
  }
  if (folder.media.empty()) fail_empty(path, folder);
  const Kind kind = most_of(folder);
  const FolderFiles& files = folder.media.at(kind);
  const std::vector<std::string> names(files.directories.begin(), files.directories.end());
  if (!files.on_top && std::all_of(names.begin(), names.end(), is_split)) {
    throw Failure(kWrongUsage,
                  fmt::format("{} has {}, which are datasets of their own: {}", printable(path),
                              listed(names), init_of(fs::path(path) / names.front())));
  }
  Draft draft{.path = path, .root = path, .kind = kind};
  if (folder.whole) draft.items = files.count;
  std::vector<std::string> kinds;
  for (const auto& [ending, count] : files.endings)
    kinds.push_back(fmt::format("{} .{}", count, ending));
  draft.seen.push_back(fmt::format("{}{}: {}.",
                                   folder.whole ? "" : "Looked at the first files alone. ",
                                   counted_media(kind, files.count), listed(kinds)));
  const bool labelled = !files.on_top && names.size() > 1;
  if (labelled)
    draft.seen.push_back(fmt::format("They lie in {}, which are taken as classes: {}.",
                                     counted(names.size(), "folder"), listed(names)));
  for (const auto& [other, left_out] : folder.media) {
    if (other == kind) continue;
    draft.seen.push_back(fmt::format(
        "Left out: {}, such as {}; 'spdlctl init' of a folder of them alone reads them.",
        counted_media(other, left_out.count), left_out.first));
  }
  if (folder.others > 0)
    draft.seen.push_back(fmt::format("Left out: {}, such as {}.",
                                     counted(folder.others, "other file"), folder.other));
  if (!folder.tables.empty())
    draft.seen.push_back(fmt::format("If {} says what is in the {}: {}", folder.tables.front(),
                                     kind == Kind::kSound ? "files" : media_noun(kind) + "s",
                                     init_of(fs::path(path) / folder.tables.front())));
  draft.source = {"files:", "  root: \"${root}\"",
                  fmt::format("  pattern: {}", yaml_text(pattern_of(files)))};
  if (kind != Kind::kImages)
    draft.source.emplace_back(kind == Kind::kSound ? "  field: audio" : "  field: video");
  if (labelled) {
    draft.class_folders = true;
    draft.source.emplace_back(
        "  label: parent_dir           # batch[\"label\"]; remove this line if "
        "the folders are no classes");
  }
  for (std::string& line : parts_of_files(kind, draft.items))
    draft.source.push_back(std::move(line));
  return draft;
}

}  // namespace spdld::ctl
