// SPDX-License-Identifier: Apache-2.0
#include "ctl/init/first_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/init/survey.h"
#include "ctl/init/tar_start.h"

namespace spdld::ctl {
namespace {

constexpr std::size_t kMembers = 64;  // that are looked at
constexpr std::size_t kMaxJson = std::size_t{1} << 20;

bool is_integer(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return false;
  text = text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  return failed == std::errc() && at == end;
}

// A member's name as a sample's key and the suffix of the part that it is.
struct PartName {
  std::string key;
  std::string suffix;  // in small letters
};

std::optional<PartName> part_name(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', begin);
  if (dot == std::string::npos || dot == begin) return std::nullopt;
  PartName part{.key = name.substr(0, dot), .suffix = name.substr(dot + 1)};
  for (char& c : part.suffix) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return part;
}

bool is_image_suffix(const std::string& suffix) { return is_image_name("." + suffix); }

// What stands before the ending: "rgb." of "rgb.jpg", nothing of "jpg".
std::string_view stem_of(std::string_view suffix) {
  return suffix.substr(0, suffix.find_last_of('.') + 1);
}

}  // namespace

std::uint64_t FirstSamples::having(const std::string& suffix) const {
  return static_cast<std::uint64_t>(
      std::count_if(each.begin(), each.end(),
                    [&](const std::set<std::string>& sample) { return sample.contains(suffix); }));
}

FirstSamples read_first_samples(const std::string& shard) {
  const TarStart start = read_tar_start(shard, kMembers);
  FirstSamples samples;
  std::string last;
  // The last sample may go on behind what was read.
  std::vector<std::string> of_last;
  const auto close = [&](bool counts) {
    if (!counts || of_last.empty()) return;
    for (const std::string& suffix : of_last) {
      if (samples.having(suffix) == 0) samples.suffixes.push_back(suffix);
    }
    samples.each.emplace_back(of_last.begin(), of_last.end());
  };
  for (const TarFile& file : start.files) {
    std::optional<PartName> part = part_name(file.name);
    if (!part) continue;
    if (part->key != last) {
      close(true);
      of_last.clear();
      last = part->key;
    }
    if (part->suffix == "cls" && samples.class_name.empty() && !is_integer(file.head))
      samples.class_name = file.head;
    if (part->suffix == "json" && samples.each.empty())
      samples.json = read_tar_file(shard, file, kMaxJson);
    of_last.push_back(std::move(part->suffix));
  }
  close(start.whole || samples.each.empty());
  if (samples.each.empty())
    throw Failure(kWrongUsage,
                  fmt::format("{} has no files with names such as 0001.jpg, which make samples; is "
                              "it a WebDataset's shard?",
                              printable(shard)));
  std::error_code failure;
  const auto size = std::filesystem::file_size(shard, failure);
  samples.in_shard = samples.each.size();
  if (!start.whole && !failure)
    samples.in_shard = size / std::max<std::uint64_t>(start.bytes / samples.each.size(), 1);
  return samples;
}

std::vector<std::string> image_suffixes(const FirstSamples& samples) {
  std::vector<std::string> candidates;
  std::copy_if(samples.suffixes.begin(), samples.suffixes.end(), std::back_inserter(candidates),
               is_image_suffix);
  // One without a dot is the image itself, where others belong to it: jpg beside seg.png.
  std::stable_partition(candidates.begin(), candidates.end(),
                        [](const std::string& suffix) { return stem_of(suffix).empty(); });
  for (const std::set<std::string>& sample : samples.each) {
    const auto first =
        std::find_if(candidates.begin(), candidates.end(),
                     [&](const std::string& suffix) { return sample.contains(suffix); });
    if (first == candidates.end()) continue;
    std::rotate(candidates.begin(), first, first + 1);
    break;
  }
  std::vector<std::string> chosen;
  for (const std::string& suffix : candidates) {
    const bool in_place =
        chosen.empty() ||
        (stem_of(suffix) == stem_of(chosen.front()) &&
         std::none_of(
             samples.each.begin(), samples.each.end(), [&](const std::set<std::string>& sample) {
               return sample.contains(suffix) &&
                      std::any_of(chosen.begin(), chosen.end(),
                                  [&](const std::string& other) { return sample.contains(other); });
             }));
    if (in_place) chosen.push_back(suffix);
  }
  return chosen;
}

}  // namespace spdld::ctl
