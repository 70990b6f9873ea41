// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/init/companion_files.h"
#include "ctl/init/survey.h"
#include "ctl/swap_options.h"

namespace spdld::ctl {
namespace {

namespace fs = std::filesystem;
using Kind = Draft::Kind;

constexpr std::uint64_t kMaxEntries = 200'000;
constexpr std::uint64_t kSounds = 8;  // whole files of a batch
constexpr std::uint64_t kShortText = 4096;

// The files of one kind below a folder.
struct FolderFiles {
  std::uint64_t count = 0;
  bool on_top = false;                     // some lie in the folder itself
  std::set<std::string> directories = {};  // the others, by their top-level ones
  std::string first = {};                  // one of them, by its path
};

// What lies below a folder; names of top-level entries.
struct Folder {
  std::vector<std::string> shards = {};  // at the top
  std::vector<std::string> tables = {};  // at the top, and .json files
  std::set<std::string> directories_of_shards = {};
  std::map<Kind, FolderFiles> media = {};
  std::string other = {};                                   // one of them, by its path
  std::string packed = {};                                  // a compressed tar
  std::map<std::string, std::uint64_t> packed_on_top = {};  // such, by their endings: ".tar.gz"
  std::vector<std::string> files = {};                      // paths, sorted
  bool whole = true;                                        // all of it was looked at
};

void add_file(const fs::path& relative, Folder& folder) {
  const std::string name = relative.filename().string();
  const bool on_top = !relative.has_parent_path();
  const std::string top = relative.begin()->string();
  const std::string ending = ending_of(name);
  folder.files.push_back(relative.string());
  if (const std::optional<Kind> kind = media_kind(name)) {
    FolderFiles& files = folder.media[*kind];
    ++files.count;
    if (on_top) {
      files.on_top = true;
    } else {
      files.directories.insert(top);
    }
    if (files.first.empty()) files.first = relative.string();
    return;
  }
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
  std::sort(folder.files.begin(), folder.files.end());
  return folder;
}

std::string init_of(const fs::path& path) {
  return shell_command({"spdlctl", "init", path.string()});
}

// Whether its index.json lists shards.
bool is_streaming_index(const std::string& path, const Folder& folder) {
  if (!std::binary_search(folder.files.begin(), folder.files.end(), "index.json")) return false;
  std::string head(kForeignHead, '\0');
  std::ifstream file(path + "/index.json", std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return head.find("\"shards\"") != std::string::npos;
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
  if (is_streaming_index(path, folder))
    throw Failure(kWrongUsage, fmt::format("{} has an index.json of MosaicML's streaming: {}",
                                           shown, foreign_file("x.mds")->what));
  if (!folder.tables.empty())
    throw Failure(
        kWrongUsage,
        fmt::format("{} has neither images, videos, sound nor .tar shards, but {}; name it: {}",
                    shown, printable(folder.tables.front()),
                    init_of(fs::path(path) / folder.tables.front())));
  for (const std::string& file : folder.files) {
    const ForeignFormat* const foreign = foreign_file(file);
    if (foreign == nullptr) continue;
    throw Failure(kWrongUsage,
                  fmt::format("below {} there are no media and shards that are read, but files "
                              "such as {}: it is {}",
                              shown, printable(file), described(*foreign)));
  }
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

// How many files have an ending, as it is spelled.
using Endings = std::map<std::string, std::uint64_t>;

// "**/*.jpg", "images/**/*.{JPEG,png}"
std::string pattern_of(const std::string& directories, const Endings& endings) {
  std::string all;
  for (const auto& [ending, count] : endings) all += (all.empty() ? "" : ",") + ending;
  return directories + (endings.size() == 1 ? "*." + all : "*.{" + all + "}");
}

std::string noun_of(Kind kind) { return kind == Kind::kSound ? "file" : media_noun(kind); }

// Whether a file of the folder is brought along, and why that is taken to be right.
void add_companions(const PairedFiles& pairs, Kind kind, Draft& draft) {
  std::vector<std::string> optional;
  std::vector<std::string> lines;
  for (const CompanionFiles& each : pairs.companions) {
    const std::string line = fmt::format("{}: {}", each.field, yaml_of_pattern(each.pattern));
    if (!each.why_not.empty()) {
      lines.push_back(fmt::format("    # {}   # {}", line, each.why_not));
      continue;
    }
    lines.push_back("    " + line);
    const std::uint64_t items = pairs.items.size();
    draft.seen.push_back(fmt::format(
        "{} of {} {}s have a file of a like name, as {} has {}: it comes along as '{}'.",
        each.items, items, noun_of(kind), each.item, each.such, each.field));
    if (each.items < items) optional.push_back(each.field);
    if (each.is_mask()) {
      const bool wide = each.kind == CompanionFiles::Kind::kWideMask;
      draft.hints.push_back(
          fmt::format("# Masks keep their numbers, and follow the images' crops and flips: uint{}.",
                      wide ? 16 : 8));
      draft.hints.push_back(fmt::format("- decode_image: {{field: {}, mode: index{}}}", each.field,
                                        wide ? ", dtype: uint16" : ""));
    } else {
      draft.bounds.push_back(fmt::format("{}: {{max_bytes: {}}}", each.field,
                                         each.max_bytes > kShortText / 2 ? "128KiB" : "4KiB"));
    }
  }
  if (lines.empty()) return;
  draft.source.emplace_back("  companions:");
  if (lines.front().starts_with("    #")) draft.source.back() = "  # companions:";
  draft.source.insert(draft.source.end(), lines.begin(), lines.end());
  if (!optional.empty())
    draft.source.push_back(
        fmt::format("  optional: [{}]   # others have nothing there; NAME_present tells which",
                    fmt::join(optional, ", ")));
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

[[noreturn]] void fail_of_splits(const std::string& path, const std::vector<std::string>& names) {
  const auto trains = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("train");
  });
  const std::string& first = trains == names.end() ? names.front() : *trains;
  std::vector<std::string> command{"spdlctl", "init", (fs::path(path) / first).string()};
  for (const std::string_view validation : {"val", "valid", "validation", "dev", "eval", "test"}) {
    if (first == validation || std::find(names.begin(), names.end(), validation) == names.end())
      continue;
    command.insert(command.end(),
                   {"--val", (fs::path(path) / validation).string(), "-o", first + ".yaml"});
    break;
  }
  throw Failure(kWrongUsage, fmt::format("{} has {}, which are datasets of their own: {}",
                                         printable(path), listed(names), shell_command(command)));
}

void tell_of_splits(const std::string& path, const PairedFiles& pairs, Draft& draft) {
  if (pairs.splits.empty()) return;
  draft.splits = pairs.splits;
  draft.seen.push_back(fmt::format("Those of {} alone: {} are datasets of their own.",
                                   pairs.splits.front(), listed(pairs.splits)));
  draft.seen.push_back(fmt::format("One for validation beside it: add --val {}",
                                   (fs::path(path) / pairs.splits[1]).string()));
}

// Counts files that no item has.
void tell_what_is_left_out(const std::string& path, const Folder& folder, const PairedFiles& pairs,
                           Kind kind, Draft& draft) {
  for (const auto& [other, left_out] : folder.media) {
    if (other == kind) continue;
    draft.seen.push_back(fmt::format(
        "Left out: {}, such as {}; 'spdlctl init' of a folder of them alone reads them.",
        counted_media(other, left_out.count), left_out.first));
  }
  if (pairs.others > 0)
    draft.seen.push_back(
        fmt::format("Left out: {}, such as {}.", counted(pairs.others, "other file"), pairs.other));
  if (!folder.tables.empty())
    draft.seen.push_back(fmt::format("If {} says what is in the {}: {}", folder.tables.front(),
                                     kind == Kind::kSound ? "files" : media_noun(kind) + "s",
                                     init_of(fs::path(path) / folder.tables.front())));
}

}  // namespace

Draft survey_folder(const std::string& path, const std::string& within) {
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
  if (!files.on_top && std::all_of(names.begin(), names.end(), is_split))
    fail_of_splits(path, names);
  const PairedFiles pairs = pair_files(path, folder.files, kind, within);
  if (pairs.items.empty())
    throw Failure(kWrongUsage, fmt::format("{} has no {} of those in {}", printable(within),
                                           noun_of(kind), printable(path)));
  Draft draft{.path = path, .root = path, .kind = kind};
  if (folder.whole) draft.items = pairs.items.size();
  Endings endings;
  for (const std::string& item : pairs.items) ++endings[item.substr(item.rfind('.') + 1)];
  std::vector<std::string> kinds;
  for (const auto& [ending, count] : endings) kinds.push_back(fmt::format("{} .{}", count, ending));
  draft.seen.push_back(fmt::format("{}{}: {}.",
                                   folder.whole ? "" : "Looked at the first files alone. ",
                                   counted_media(kind, pairs.items.size()), listed(kinds)));
  const bool labelled =
      !files.on_top && names.size() > 1 && within.empty() && pairs.pattern == "**/";
  if (labelled)
    draft.seen.push_back(fmt::format("They lie in {}, which are taken as classes: {}.",
                                     counted(names.size(), "folder"), listed(names)));
  if (labelled && pairs.alike)
    draft.seen.emplace_back(
        "Each has files of the same names: if these belong together, take one folder by 'pattern' "
        "and the others as 'companions' in place of 'label'.");
  tell_of_splits(path, pairs, draft);
  tell_what_is_left_out(path, folder, pairs, kind, draft);
  draft.source = {"files:", "  root: \"${root}\"",
                  fmt::format("  pattern: {}", yaml_text(pattern_of(pairs.pattern, endings)))};
  if (!pairs.exclude.empty()) {
    std::vector<std::string> patterns;
    for (const std::string& each : pairs.exclude) patterns.push_back(yaml_text(each));
    draft.source.push_back(fmt::format("  exclude: [{}]", fmt::join(patterns, ", ")));
  }
  if (kind != Kind::kImages)
    draft.source.emplace_back(kind == Kind::kSound ? "  field: audio" : "  field: video");
  if (labelled) {
    draft.class_folders = true;
    draft.class_names = true;
    draft.source.emplace_back(
        "  label: parent_dir           # batch[\"label\"]; remove this line if "
        "the folders are no classes");
  }
  add_companions(pairs, kind, draft);
  for (std::string& line : parts_of_files(kind, draft.items))
    draft.source.push_back(std::move(line));
  return draft;
}

}  // namespace spdld::ctl
