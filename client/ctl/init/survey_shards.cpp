// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/text/ascii.h"
#include "base/text/counted.h"
#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/init/companion_files.h"
#include "ctl/init/first_samples.h"
#include "ctl/init/stage_hints.h"
#include "ctl/init/survey.h"

namespace spdld::ctl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxDigits = 9;

// What is read of a part that has this suffix.
struct PartKind {
  std::string field;    // empty: nothing
  std::string comment;  // why not
};

PartKind kind_of(const std::string& suffix) {
  if (suffix == "txt" || suffix == "text" || suffix == "transcript") return {"caption", {}};
  if (suffix == "json") return {"meta", {}};
  if (suffix == "cls") return {"label", {}};
  if (is_image_name("." + suffix))
    return {{}, "an image, too: a field and a decode_image of its own would read it"};
  if (suffix == "npy" || suffix == "npz") return {{}, "arrays"};
  if (suffix == "pkl" || suffix == "pyd" || suffix == "pickle" || suffix == "pth" || suffix == "pt")
    return {{}, "pickled, which is never read: unpickling runs code"};
  return {{}, "would come as bytes"};
}

// A shard's name around its number: "train-", 12, 5 digits, ".tar".
struct Numbered {
  std::string before;
  std::string after;
  std::size_t digits = 0;
  std::uint64_t number = 0;
};

std::optional<Numbered> numbered(const std::string& name) {
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

// Shards of one name but for their numbers.
struct Group {
  std::string pattern;
  std::vector<std::string> names;
};

Group group_of(std::vector<std::string> names) {
  const std::optional<Numbered> first = numbered(names.front());
  const std::optional<Numbered> last = numbered(names.back());
  if (names.size() == 1 || !first) return {.pattern = glob_text(names.front()), .names = names};
  const auto pattern = [&](std::string_view between) {
    return glob_text(first->before) + std::string(between) + glob_text(first->after);
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
PartKind kind_in(const FirstSamples& samples, const std::string& suffix) {
  const PartKind kind = kind_of(suffix);
  if (kind.field == "label" && !samples.class_name.empty())
    return {{},
            fmt::format("holds class names, such as '{}': add label: cls here, and classes: "
                        "[NAME, ...] beside fields",
                        printable(samples.class_name.substr(0, 40)))};
  const std::uint64_t having = samples.having(suffix);
  if (kind.field.empty() || having == samples.each.size()) return kind;
  return {{},
          fmt::format("{} of the first {} samples have it: add {}: {}, and beside fields "
                      "optional: [{}], or missing: skip",
                      having, samples.each.size(), kind.field, suffix, kind.field)};
}

void hint_at_json(const FirstSamples& samples, const std::set<std::string>& fields, Draft& draft) {
  JsonHint hint = hint_of_json(samples.json, "meta", fields);
  draft.hints = std::move(hint.stages);
  draft.unbounded = std::move(hint.fields);
}

void add_fields(const FirstSamples& samples, const std::string& shard, Draft& draft) {
  const std::vector<std::string> images = image_suffixes(samples);
  if (images.empty())
    throw Failure(
        kWrongUsage,
        fmt::format("the first samples of {} have {}, and no image that would be decoded; "
                    "write the pipeline by hand, as docs/sources.md says",
                    printable(shard), listed(samples.suffixes)));
  std::map<std::string, std::string> fields;  // what is read, by field
  std::vector<std::string> left_out;
  fields["image"] = fmt::format("{}", fmt::join(images, ";"));
  std::uint64_t with_image = 0;
  for (const std::string& suffix : images) with_image += samples.having(suffix);
  for (const std::string& suffix : samples.suffixes) {
    if (std::find(images.begin(), images.end(), suffix) != images.end()) continue;
    const PartKind kind = kind_in(samples, suffix);
    if (kind.field.empty()) {
      left_out.push_back(fmt::format("    # {}: {}", printable(suffix), kind.comment));
      continue;
    }
    std::string& suffixes = fields[kind.field];
    suffixes += (suffixes.empty() ? "" : ";") + suffix;
  }
  draft.source.emplace_back("  fields:");
  std::set<std::string> names;
  for (const char* const field : {"image", "caption", "meta", "label"}) {
    if (!fields.contains(field)) continue;
    draft.source.push_back(fmt::format("    {}: {}", field, yaml_text(fields[field])));
    names.insert(field);
  }
  draft.source.insert(draft.source.end(), left_out.begin(), left_out.end());
  if (names.contains("meta")) hint_at_json(samples, names, draft);
  if (with_image >= samples.each.size()) return;
  draft.source.emplace_back(
      "  missing: skip               # samples without an image are left out");
  draft.source.emplace_back(
      "  # optional: image           # in place of 'missing', this keeps them, without one");
  draft.items = draft.items * with_image / samples.each.size();
}

}  // namespace

Draft survey_shards(const std::string& folder, const std::vector<std::string>& names) {
  const std::vector<Group> groups = groups_of(names);
  const Group& group = groups.front();
  const std::string first = folder + "/" + group.names.front();
  const FirstSamples samples = read_first_samples(first);
  Draft draft{.path = folder, .shards = true};
  draft.items = samples.in_shard * group.names.size();
  draft.seen.push_back(fmt::format("{}; the first samples have {}.",
                                   counted(group.names.size(), "shard"), listed(samples.suffixes)));
  draft.seen.push_back(
      fmt::format("About {} in the first one.", counted(samples.in_shard, "sample")));
  // The root stands in a pattern, where braces and the like would mean something.
  const bool plain = glob_text(folder) == folder && folder.find("::") == std::string::npos;
  if (plain) draft.root = folder;
  draft.source = {"webdataset:",
                  "  shards: " + (plain ? yaml_below_root(group.pattern)
                                        : yaml_text(glob_text(folder) + "/" + group.pattern))};
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
