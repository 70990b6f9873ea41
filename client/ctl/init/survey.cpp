// SPDX-License-Identifier: Apache-2.0
#include "ctl/init/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/text/ascii.h"
#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/swap_options.h"

namespace spdld::ctl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxDirectories = 1000;  // that are looked at for a root

bool has_all(const fs::path& directory, const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    std::error_code failure;
    return fs::is_regular_file(directory / name, failure);
  });
}

// The directories in `directory`, sorted.
std::vector<fs::path> directories_in(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator each(directory, failure), end; !failure && each != end;
       each.increment(failure)) {
    std::error_code unknown;
    if (found.size() < kMaxDirectories && each->is_directory(unknown))
      found.push_back(each->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path absolute_path(const std::string& given) {
  std::error_code failure;
  fs::path absolute = fs::absolute(given, failure).lexically_normal();
  if (absolute.has_relative_path() && !absolute.has_filename()) absolute = absolute.parent_path();
  return absolute;
}

}  // namespace

const ForeignFormat* foreign_at(const std::string& path) {
  if (const ForeignFormat* const by_name = foreign_file(path)) return by_name;
  std::string head(kForeignHead, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return foreign_content(head);
}

std::string ending_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? "" : lower_case(name.substr(dot + 1));
}

std::optional<Draft::Kind> media_kind(std::string_view name) {
  constexpr std::array<std::string_view, 9> kImages{"jpg", "jpeg", "png",  "webp", "gif",
                                                    "bmp", "tif",  "tiff", "avif"};
  constexpr std::array<std::string_view, 6> kVideos{"mp4", "m4v", "mov", "mkv", "webm", "avi"};
  constexpr std::array<std::string_view, 11> kSound{"wav", "flac", "mp3", "m4a", "aac", "ogg",
                                                    "oga", "opus", "mka", "w64", "rf64"};
  const std::string ending = ending_of(name);
  const auto is_among = [&](const auto& endings) {
    return std::find(endings.begin(), endings.end(), ending) != endings.end();
  };
  if (is_among(kImages)) return Draft::Kind::kImages;
  if (is_among(kVideos)) return Draft::Kind::kVideos;
  if (is_among(kSound)) return Draft::Kind::kSound;
  return std::nullopt;
}

bool is_image_name(std::string_view name) { return media_kind(name) == Draft::Kind::kImages; }

std::string media_noun(Draft::Kind kind) {
  switch (kind) {
    case Draft::Kind::kImages: return "image";
    case Draft::Kind::kVideos: return "video";
    case Draft::Kind::kSound: break;
  }
  return "file of sound";
}

bool is_packed_tar_name(std::string_view name) {
  const std::string ending = ending_of(name);
  if (ending == "tgz" || ending == "tbz2" || ending == "txz") return true;
  return name.size() > ending.size() &&
         ending_of(name.substr(0, name.size() - ending.size() - 1)) == "tar" &&
         (ending == "gz" || ending == "zst" || ending == "bz2" || ending == "xz");
}

std::string unpacking_command(std::string_view name) {
  const std::string ending = ending_of(name);
  if (ending == "zst") return "unzstd";
  if (ending == "bz2" || ending == "tbz2") return "bunzip2 -k";
  return ending == "xz" || ending == "txz" ? "unxz -k" : "gunzip -k";
}

void fail_packed(const std::string& path) {
  throw Failure(kWrongUsage,
                fmt::format("{} is compressed, and no sample can be found in it without unpacking "
                            "what lies before: '{}' it, and name the .tar",
                            printable(path), unpacking_command(path)));
}

std::optional<std::string> find_root(const std::string& file, const std::vector<std::string>& names,
                                     const std::optional<std::string>& root) {
  std::error_code failure;
  if (root) {
    const fs::path given = fs::absolute(*root, failure).lexically_normal();
    return has_all(given, names) ? std::optional(given.string()) : std::nullopt;
  }
  const fs::path here = fs::path(file).parent_path();
  std::vector<fs::path> candidates{here, here.parent_path()};
  for (const fs::path& directory : {here, here.parent_path()}) {
    for (fs::path& each : directories_in(directory)) candidates.push_back(std::move(each));
  }
  for (const fs::path& candidate : candidates) {
    if (has_all(candidate, names)) return candidate.string();
  }
  // One below these: images/train2017.
  std::size_t looked_at = 0;
  for (std::size_t i = 2; i < candidates.size(); ++i) {
    for (const fs::path& directory : directories_in(candidates[i])) {
      if (++looked_at > kMaxDirectories) return std::nullopt;
      if (has_all(directory, names)) return directory.string();
    }
  }
  return std::nullopt;
}

std::string listed(const std::vector<std::string>& names, std::size_t most) {
  std::string text;
  const std::size_t shown = names.size() <= most ? names.size() : most - 1;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

Draft survey_validation(const std::string& given, const std::optional<std::string>& root,
                        const Draft& training) {
  const std::string path = absolute_path(given).string();
  Draft draft;
  if (path == training.path || path.starts_with(training.path + "/")) {
    const std::string within = path.substr(std::min(training.path.size() + 1, path.size()));
    if (std::find(training.splits.begin(), training.splits.end(), within) ==
            training.splits.end() ||
        within == training.splits.front())
      throw Failure(kWrongUsage,
                    fmt::format("{} is among what {} is trained on; name what is kept for "
                                "validation, or leave --val out and part the data by 'select'",
                                printable(path), printable(training.path)));
    draft = survey_folder(training.path, within);
  } else {
    draft = survey(path, root);
  }
  if (draft.kind != training.kind || draft.shards != training.shards ||
      draft.boxes != training.boxes || draft.source.front() != training.source.front())
    throw Failure(kWrongUsage,
                  fmt::format("{} holds other data than {}: a validation pipeline reads what a "
                              "training pipeline does",
                              printable(path), printable(training.path)));
  if (training.class_folders && !draft.class_folders)
    throw Failure(kWrongUsage, fmt::format("{} has no folders of several classes, as {} has",
                                           printable(path), printable(training.path)));
  make_validation(training, draft);
  return draft;
}

Draft survey(const std::string& given, const std::optional<std::string>& root) {
  std::error_code failure;
  const fs::path absolute = absolute_path(given);
  const std::string path = absolute.string();
  const fs::file_status status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found)
    throw Failure(kWrongUsage, fmt::format("{} is not there", printable(path)));
  if (failure)
    throw Failure(kWrongUsage,
                  fmt::format("cannot look at {}: {}", printable(path), failure.message()));
  const std::string ending = ending_of(path);
  const bool table = ending == "csv" || ending == "tsv" || ending == "jsonl";
  if (root && !table && ending != "json")
    throw Failure(kWrongUsage,
                  "--root is for tables and COCO annotations, which name files: "
                  "leave it out");
  if (status.type() == fs::file_type::directory) return survey_folder(path);
  if (status.type() != fs::file_type::regular)
    throw Failure(kWrongUsage,
                  fmt::format("{} is neither a folder nor a regular file", printable(path)));
  if (is_packed_tar_name(path)) fail_packed(path);
  if (ending == "tar") return survey_shard(path);
  if (table) return survey_table(path, root);
  if (ending == "json") return survey_coco(path, root);
  if (const std::optional<Draft::Kind> kind = media_kind(path))
    throw Failure(
        kWrongUsage,
        fmt::format("{} is one {}; name its folder: {}", printable(path), media_noun(*kind),
                    shell_command({"spdlctl", "init", absolute.parent_path().string()})));
  if (const ForeignFormat* const foreign = foreign_at(path))
    throw Failure(kWrongUsage, fmt::format("{} is {}", printable(path), described(*foreign)));
  throw Failure(
      kWrongUsage,
      fmt::format("{} is nothing that a pipeline could read: name a folder of images, of videos, "
                  "of sound or of .tar shards, a .tar, a .csv, .tsv or .jsonl, or COCO's .json",
                  printable(path)));
}

}  // namespace spdld::ctl
