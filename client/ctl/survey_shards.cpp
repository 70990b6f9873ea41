// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <tuple>

#include "base/counted.h"
#include "base/printable.h"
#include "ctl/failure.h"
#include "ctl/survey.h"
#include "ctl/tar_start.h"

namespace spdld::ctl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMembers = 64;  // that are looked at
constexpr std::size_t kMaxDigits = 9;

// What is read of a part that has this suffix.
struct Kind {
  std::string field;    // empty: nothing
  std::string comment;  // why not
};

Kind kind_of(const std::string& suffix) {
  if (suffix.find('.') == std::string::npos && is_image_name("." + suffix)) return {"image", {}};
  if (suffix == "txt" || suffix == "text" || suffix == "transcript") return {"caption", {}};
  if (suffix == "json") return {"meta", {}};
  if (suffix == "cls") return {"label", {}};
  if (is_image_name(suffix))
    return {{}, "an image, too: a field and a decode_image of its own would read it"};
  if (suffix == "npy" || suffix == "npz") return {{}, "arrays"};
  if (suffix == "pkl" || suffix == "pyd" || suffix == "pickle" || suffix == "pth" || suffix == "pt")
    return {{}, "pickled, which is never read: unpickling runs code"};
  return {{}, "would come as bytes"};
}

// What the first samples of a shard have.
struct Samples {
  std::vector<std::string> suffixes = {};            // in the order of their coming
  std::map<std::string, std::uint64_t> having = {};  // samples, by suffix
  std::string class_name = {};                       // in a cls that is no integer
  std::uint64_t count = 0;
  std::uint64_t in_shard = 0;  // about
};

bool is_integer(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return false;
  text = text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  return failed == std::errc() && at == end;
}

Samples read_samples(const std::string& shard) {
  const TarStart start = read_tar_start(shard, kMembers);
  Samples samples;
  std::string last;
  // The last sample may go on behind what was read.
  std::vector<std::string> of_last;
  const auto close = [&](bool counts) {
    if (!counts || of_last.empty()) return;
    ++samples.count;
    for (const std::string& suffix : of_last) {
      if (samples.having[suffix]++ == 0) samples.suffixes.push_back(suffix);
    }
  };
  for (const TarFile& file : start.files) {
    const std::size_t slash = file.name.rfind('/');
    const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
    const std::size_t dot = file.name.find('.', name);
    if (dot == std::string::npos || dot == name) continue;
    const std::string key = file.name.substr(0, dot);
    if (key != last) {
      close(true);
      of_last.clear();
      last = key;
    }
    std::string suffix = file.name.substr(dot + 1);
    for (char& c : suffix) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    if (suffix == "cls" && samples.class_name.empty() && !is_integer(file.head))
      samples.class_name = file.head;
    of_last.push_back(std::move(suffix));
  }
  close(start.whole || samples.count == 0);
  if (samples.count == 0)
    throw Failure(kWrongUsage,
                  fmt::format("{} has no files with names such as 0001.jpg, which make samples; is "
                              "it a WebDataset's shard?",
                              printable(shard)));
  std::error_code failure;
  const auto size = fs::file_size(shard, failure);
  samples.in_shard = samples.count;
  if (!start.whole && !failure)
    samples.in_shard = size / std::max<std::uint64_t>(start.bytes / samples.count, 1);
  return samples;
}

// A shard's name around its number: "train-", 12, 5 digits, ".tar".
struct Numbered {
  std::string before;
  std::string after;
  std::size_t digits = 0;
  std::uint64_t number = 0;
};

std::optional<Numbered> numbered(const std::string& name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto last = std::find_if(name.rbegin(), name.rend(), is_digit).base();
  auto first = last;
  while (first != name.begin() && is_digit(*(first - 1))) --first;
  if (first == last || static_cast<std::size_t>(last - first) > kMaxDigits) return std::nullopt;
  Numbered found{.before = std::string(name.begin(), first),
                 .after = std::string(last, name.end()),
                 .digits = static_cast<std::size_t>(last - first)};
  std::from_chars(&*first, &*first + found.digits, found.number);
  return found;
}

// As the pattern of shards has a text that stands for itself.
std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\{}[],*?").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Shards of one name but for their numbers.
struct Group {
  std::string pattern;
  std::vector<std::string> names;
};

Group group_of(std::vector<std::string> names) {
  const std::optional<Numbered> first = numbered(names.front());
  const std::optional<Numbered> last = numbered(names.back());
  if (names.size() == 1 || !first) return {.pattern = escaped(names.front()), .names = names};
  const auto pattern = [&](std::string_view between) {
    return escaped(first->before) + std::string(between) + escaped(first->after);
  };
  const bool gapless =
      first->digits == last->digits && last->number - first->number + 1 == names.size();
  if (!gapless) return {.pattern = pattern("*"), .names = std::move(names)};
  return {.pattern = pattern(
              fmt::format("{{{0:0{2}}..{1:0{2}}}}", first->number, last->number, first->digits)),
          .names = std::move(names)};
}

// By the text around the number, that of training first, then by how many they are.
std::vector<Group> groups_of(const std::vector<std::string>& names) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> by_name;
  for (const std::string& name : names) {
    const std::optional<Numbered> parts = numbered(name);
    by_name[parts ? std::pair(parts->before, parts->after) : std::pair(name, std::string())]
        .push_back(name);
  }
  std::vector<Group> groups;
  for (auto& [around, of_one] : by_name) {
    std::sort(of_one.begin(), of_one.end(), [](const std::string& a, const std::string& b) {
      return std::pair(a.size(), a) < std::pair(b.size(), b);
    });
    groups.push_back(group_of(std::move(of_one)));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    const auto rank = [](const Group& group) {
      const bool trains = group.pattern.find("train") != std::string::npos;
      return std::tuple(!trains, -static_cast<std::int64_t>(group.names.size()));
    };
    return rank(a) < rank(b);
  });
  return groups;
}

// What a part is to the pipeline, as far as the first samples tell.
Kind kind_in(const Samples& samples, const std::string& suffix) {
  const Kind kind = kind_of(suffix);
  if (kind.field == "label" && !samples.class_name.empty())
    return {{},
            fmt::format("holds class names, such as '{}': add label: cls here, and classes: "
                        "[NAME, ...] beside fields",
                        printable(samples.class_name.substr(0, 40)))};
  const std::uint64_t having = samples.having.at(suffix);
  if (kind.field.empty() || kind.field == "image" || having == samples.count) return kind;
  return {{},
          fmt::format("{} of the first {} samples have it: add {}: {}, and beside fields "
                      "missing: skip, or empty",
                      having, samples.count, kind.field, suffix)};
}

void add_fields(const Samples& samples, const std::string& shard, Draft& draft) {
  std::map<std::string, std::string> fields;  // what is read, by field
  std::vector<std::string> left_out;
  std::uint64_t images = 0;
  for (const std::string& suffix : samples.suffixes) {
    const Kind kind = kind_in(samples, suffix);
    if (kind.field.empty()) {
      left_out.push_back(fmt::format("    # {}: {}", printable(suffix), kind.comment));
      continue;
    }
    std::string& suffixes = fields[kind.field];
    suffixes += (suffixes.empty() ? "" : ";") + suffix;
    if (kind.field == "image") images += samples.having.at(suffix);
  }
  if (images == 0)
    throw Failure(
        kWrongUsage,
        fmt::format("the first samples of {} have {}, and no image that would be decoded; "
                    "write the pipeline by hand, as docs/sources.md says",
                    printable(shard), listed(samples.suffixes)));
  draft.source.emplace_back("  fields:");
  for (const char* const field : {"image", "caption", "meta", "label"}) {
    if (fields.contains(field))
      draft.source.push_back(fmt::format("    {}: {}", field, yaml_text(fields[field])));
  }
  draft.source.insert(draft.source.end(), left_out.begin(), left_out.end());
  if (images >= samples.count) return;
  draft.source.emplace_back(
      "  missing: skip               # samples without an image are left out");
  draft.items = draft.items * images / samples.count;
}

}  // namespace

Draft survey_shards(const std::string& folder, const std::vector<std::string>& names) {
  const std::vector<Group> groups = groups_of(names);
  const Group& group = groups.front();
  const std::string first = folder + "/" + group.names.front();
  const Samples samples = read_samples(first);
  Draft draft{.path = folder, .shards = true};
  draft.items = samples.in_shard * group.names.size();
  draft.seen.push_back(fmt::format("{}; the first samples have {}.",
                                   counted(group.names.size(), "shard"), listed(samples.suffixes)));
  draft.seen.push_back(
      fmt::format("About {} in the first one.", counted(samples.in_shard, "sample")));
  // The root stands in a pattern, where braces and the like would mean something.
  const bool plain = escaped(folder) == folder && folder.find("::") == std::string::npos;
  if (plain) draft.root = folder;
  draft.source = {"webdataset:",
                  "  shards: " + (plain ? yaml_below_root(group.pattern)
                                        : yaml_text(escaped(folder) + "/" + group.pattern))};
  for (std::size_t i = 1; i < groups.size(); ++i)
    draft.source.push_back(fmt::format("  # {} beside them: {}",
                                       counted(groups[i].names.size(), "shard"),
                                       printable(groups[i].pattern)));
  add_fields(samples, first, draft);
  return draft;
}

Draft survey_shard(const std::string& path) {
  const fs::path shard(path);
  Draft draft = survey_shards(shard.parent_path().string(), {shard.filename().string()});
  draft.path = path;
  return draft;
}

}  // namespace spdld::ctl
