// SPDX-License-Identifier: Apache-2.0
#include "ctl/init/companion_files.h"

#include <algorithm>
#include <array>
#include <compare>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>

#include "base/text/ascii.h"
#include "ctl/init/stage_hints.h"
#include "ctl/init/survey.h"

namespace spdld::ctl {
namespace {

constexpr std::size_t kSamples = 64;    // items whose directories are looked at
constexpr std::size_t kFewest = 16;     // one in so many samples has a companion, or more
constexpr std::size_t kSiblings = 64;   // directories that are looked into for one of them
constexpr std::size_t kLikeNames = 16;  // files of one directory that may belong to an item
constexpr std::size_t kMostCompanions = 8;
constexpr std::size_t kMostLasts = 8;      // directories beside each other below those of scenes
constexpr std::uint64_t kMaxText = 65536;  // bytes

bool starts_word(char c) { return c == '_' || c == '-' || c == '.'; }

// A relative path, taken apart as companions name its parts.
struct Parts {
  std::string_view dir = {};
  std::string_view top = {};
  std::string_view subdir = {};
  std::string_view last = {};  // directory
  std::string_view stem = {};
};

Parts parts_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = path.substr(slash + 1);
  Parts parts{.dir = slash == path.npos ? "" : path.substr(0, slash)};
  const std::size_t below = parts.dir.find('/');
  parts.top = parts.dir.substr(0, below);
  parts.subdir = below == parts.dir.npos ? "" : parts.dir.substr(below + 1);
  parts.last = parts.dir.substr(parts.dir.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  parts.stem = dot == name.npos || dot == 0 ? name : name.substr(0, dot);
  return parts;
}

// Where the companion of any item lies.
struct Rule {
  enum class Place {
    kBeside,     // in the item's directory
    kOtherTop,   // in `directory` in place of the item's top-level one
    kBelow,      // in the same directory below `directory`
    kOtherLast,  // in `directory` beside the item's own, `own`
  };
  Place place = Place::kBeside;
  std::string directory = {};
  std::string own = {};
  std::string cut = {};   // the end of the item's stem that is left out
  std::string rest = {};  // what follows then: "_mask.png"

  auto operator<=>(const Rule&) const = default;
};

// The directory with its slash. Nothing: the rule is not about such items.
std::optional<std::string> directory_of(const Rule& rule, const Parts& item) {
  const auto with_slash = [](std::string_view dir) {
    return dir.empty() ? std::string() : std::string(dir) + "/";
  };
  switch (rule.place) {
    case Rule::Place::kBeside: return with_slash(item.dir);
    case Rule::Place::kOtherTop:
      if (item.dir.empty()) return std::nullopt;
      return rule.directory + "/" + with_slash(item.subdir);
    case Rule::Place::kBelow: return rule.directory + "/" + with_slash(item.dir);
    case Rule::Place::kOtherLast: break;
  }
  if (item.last != rule.own) return std::nullopt;
  return std::string(item.dir.substr(0, item.dir.size() - item.last.size())) + rule.directory + "/";
}

std::optional<std::string> companion_of(const Rule& rule, const std::string& path) {
  const Parts item = parts_of(path);
  std::optional<std::string> name = directory_of(rule, item);
  if (!name || !item.stem.ends_with(rule.cut)) return std::nullopt;
  name->append(item.stem.substr(0, item.stem.size() - rule.cut.size())).append(rule.rest);
  return name;
}

// `deep`: items lie in directories that the pattern has to name.
std::string pattern_of(const Rule& rule, bool deep) {
  std::string pattern;
  switch (rule.place) {
    case Rule::Place::kBeside: pattern = deep ? "${dir}/" : ""; break;
    case Rule::Place::kOtherTop:
      pattern = without_variables(rule.directory) + (deep ? "/${subdir}/" : "/");
      break;
    case Rule::Place::kBelow:
      pattern = without_variables(rule.directory) + (deep ? "/${dir}/" : "/");
      break;
    case Rule::Place::kOtherLast:
      pattern = "${dir%" + rule.own + "}" + without_variables(rule.directory) + "/";
      break;
  }
  return pattern + (rule.cut.empty() ? "${stem}" : "${stem%" + rule.cut + "}") +
         without_variables(rule.rest);
}

// Whether a directory or a part of a name says that there are masks.
bool names_masks(std::string_view text) {
  constexpr std::array<std::string_view, 9> kWithin{
      "mask", "segm", "label", "annot", "trima", "matte", "groundtruth", "ground_tr", "gtfine"};
  constexpr std::array<std::string_view, 10> kWhole{"gt",  "seg",    "ann",     "anns", "target",
                                                    "lbl", "labels", "targets", "y",    "gtcoarse"};
  const std::string small = lower_case(text);
  return std::any_of(kWithin.begin(), kWithin.end(),
                     [&](std::string_view each) { return small.find(each) != small.npos; }) ||
         std::find(kWhole.begin(), kWhole.end(), small) != kWhole.end();
}

// How well a mask serves, by its name: numbers of classes before those of objects and colours.
int mask_rank(const std::string& path) {
  const std::string small = lower_case(path);
  const auto has = [&](std::string_view word) { return small.find(word) != small.npos; };
  if (has("trainid")) return 0;
  if (has("labelid")) return 1;
  if (has("instance") || has("object") || has("color") || has("colour")) return 3;
  return 2;
}

enum class Numbers { kNone, kNarrow, kWide };

// Whether a PNG's pixels are numbers: of a palette, or gray.
Numbers numbers_in(const std::string& path) {
  std::array<char, 26> head{};
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), head.size());
  if (!file || std::string_view(head.data(), 8) != "\x89PNG\r\n\x1a\n") return Numbers::kNone;
  const auto depth = static_cast<unsigned char>(head[24]);
  const auto color = static_cast<unsigned char>(head[25]);
  if (color == 3) return Numbers::kNarrow;
  if (color != 0) return Numbers::kNone;
  return depth == 16 ? Numbers::kWide : Numbers::kNarrow;
}

bool is_text_ending(const std::string& ending) {
  return ending == "txt" || ending == "text" || ending == "transcript";
}

bool may_be_companion(const std::string& ending) {
  return is_text_ending(ending) || ending == "json" || ending == "xml" || ending == "npy" ||
         ending == "npz" || is_image_name("." + ending);
}

// "polygons" of "_gtFine_polygons.json"; empty of ".json"
std::string last_word(std::string_view rest) {
  const std::string_view before = rest.substr(0, rest.rfind('.'));
  const std::size_t at = before.find_last_of("_-.");
  return std::string(at == before.npos ? before : before.substr(at + 1));
}

class Pairing {
 public:
  Pairing(const std::string& root, const std::vector<std::string>& files, Draft::Kind kind,
          const std::string& within)
      : root_(root), files_(files), kind_(kind), within_(within) {}

  PairedFiles find();
  // Once they are found: whether an item's companion that is read is this file.
  bool brings(const std::string& file) const { return brought_.contains(file); }

 private:
  using Group = std::vector<std::string>;

  bool is_there(const std::string& path) const {
    return std::binary_search(files_.begin(), files_.end(), path);
  }
  bool is_item_directory(const std::string& dir) const { return item_directories_.contains(dir); }
  Numbers numbers_of(const std::string& path) const { return numbers_in(root_ + "/" + path); }

  void list_directories();
  // Which of several groups has the items that the other ones' files belong to.
  const Group* choose(const std::map<std::string, Group>& groups) const;
  void take_items(Group items);
  void take_split(std::size_t at);
  // From these items' names.
  void find_companions();
  std::vector<std::string> samples() const;
  std::set<Rule> rules() const;
  void add_rules(const std::string& item, Rule rule, std::set<Rule>& rules) const;
  std::optional<CompanionFiles> judge(const Rule& rule) const;
  bool judge_image(const Rule& rule, CompanionFiles& found) const;
  // Masks that lie among the items are none themselves.
  void leave_out_masks(const std::vector<std::pair<Rule, CompanionFiles>>& companions);
  void name_fields(std::vector<std::pair<Rule, CompanionFiles>>& companions) const;
  std::vector<std::pair<Rule, CompanionFiles>> companions() const;
  PairedFiles find_within(Group media);
  bool find_beside_others(const std::vector<std::string>& media, bool at_top);

  const std::string& root_;
  const std::vector<std::string>& files_;
  const Draft::Kind kind_;
  const std::string& within_;
  std::map<std::string, std::set<std::string>> below_;  // directories in each directory
  std::set<std::string> item_directories_;
  std::set<std::string> brought_;  // companions that are read
  PairedFiles found_;
};

void Pairing::list_directories() {
  for (const std::string& file : files_) {
    std::string_view dir = parts_of(file).dir;
    while (!dir.empty()) {
      const std::size_t slash = dir.rfind('/');
      const std::string_view above = slash == dir.npos ? "" : dir.substr(0, slash);
      if (!below_[std::string(above)].emplace(dir.substr(slash + 1)).second) break;
      dir = above;
    }
  }
}

const Pairing::Group* Pairing::choose(const std::map<std::string, Group>& groups) const {
  const Group* chosen = nullptr;
  const auto only_one_without = [&](auto&& is_mask) {
    std::size_t count = 0;
    for (const auto& [name, group] : groups) {
      if (is_mask(name, group)) continue;
      chosen = &group;
      ++count;
    }
    return count == 1;
  };
  if (only_one_without([](const std::string& name, const Group&) { return names_masks(name); }))
    return chosen;
  const bool told_by_pixels = only_one_without([&](const std::string& name, const Group& group) {
    return names_masks(name) || numbers_of(group.front()) != Numbers::kNone;
  });
  return told_by_pixels ? chosen : nullptr;
}

void Pairing::take_items(Group items) {
  found_.items = std::move(items);
  item_directories_.clear();
  for (const std::string& item : found_.items) item_directories_.emplace(parts_of(item).dir);
}

// Where the names at this depth of all items' paths are those of splits: takes one of these.
void Pairing::take_split(std::size_t at) {
  const auto directory = [&](const std::string& item) -> std::string_view {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < at; ++i) {
      begin = item.find('/', begin);
      if (begin == item.npos) return {};
      ++begin;
    }
    const std::size_t end = item.find('/', begin);
    return end == item.npos ? std::string_view() : std::string_view(item).substr(0, end);
  };
  std::set<std::string> splits;
  for (const std::string& item : found_.items) {
    const std::string_view dir = directory(item);
    const std::string_view name = dir.substr(dir.rfind('/') + 1);
    if (!is_split(name)) return;
    splits.emplace(dir);
  }
  if (splits.size() < 2) return;
  for (const std::string& split : splits) {
    const bool trains = split.substr(split.rfind('/') + 1).starts_with("train");
    found_.splits.insert(trains ? found_.splits.begin() : found_.splits.end(), split);
  }
  const std::string taken = found_.splits.front();
  Group items;
  for (std::string& item : found_.items) {
    if (item.starts_with(taken + "/")) items.push_back(std::move(item));
  }
  take_items(std::move(items));
  found_.pattern = glob_text(taken) + "/**/";
}

void Pairing::add_rules(const std::string& item, Rule rule, std::set<Rule>& rules) const {
  const Parts parts = parts_of(item);
  // No pattern has such a text.
  if (rule.directory.find("${") != std::string::npos) return;
  const std::optional<std::string> dir = directory_of(rule, parts);
  if (!dir ||
      (rule.place != Rule::Place::kBeside && is_item_directory(dir->substr(0, dir->size() - 1))))
    return;
  // The whole stem, and then less and less of it.
  for (std::size_t length = parts.stem.size(); length > 0; --length) {
    if (length < parts.stem.size() && !starts_word(parts.stem[length])) continue;
    rule.cut = parts.stem.substr(length);
    if (rule.cut.find_first_of("${}") != std::string::npos) return;
    // A number tells items apart, not kinds of files.
    if (!rule.cut.empty() && std::none_of(rule.cut.begin(), rule.cut.end(), is_letter)) continue;
    const std::string before = *dir + std::string(parts.stem.substr(0, length));
    std::size_t like = 0;
    for (auto at = std::lower_bound(files_.begin(), files_.end(), before);
         at != files_.end() && at->starts_with(before) && like < kLikeNames; ++at) {
      rule.rest = at->substr(before.size());
      const bool whole = !rule.rest.empty() && starts_word(rule.rest[0]) &&
                         rule.rest.find('/') == std::string::npos &&
                         rule.rest.find("${") == std::string::npos;
      if (!whole || *at == item || !may_be_companion(ending_of(*at))) continue;
      ++like;
      rules.insert(rule);
    }
    if (like > 0) return;
  }
}

std::vector<std::string> Pairing::samples() const {
  std::vector<std::string> samples;
  const std::size_t step = std::max<std::size_t>(found_.items.size() / kSamples, 1);
  for (std::size_t i = 0; i < found_.items.size(); i += step) samples.push_back(found_.items[i]);
  return samples;
}

// Of companions that at least some of the samples have.
std::set<Rule> Pairing::rules() const {
  std::set<Rule> rules;
  const std::vector<std::string> samples = this->samples();
  for (const std::string& item : samples) {
    const Parts parts = parts_of(item);
    add_rules(item, {.place = Rule::Place::kBeside}, rules);
    const auto each_in = [&](const std::string& directory, Rule rule) {
      const auto names = below_.find(directory);
      if (names == below_.end()) return;
      std::size_t seen = 0;
      for (const std::string& name : names->second) {
        if (++seen > kSiblings) return;
        rule.directory = name;
        add_rules(item, rule, rules);
      }
    };
    each_in("", {.place = Rule::Place::kBelow});
    if (!parts.dir.empty()) each_in("", {.place = Rule::Place::kOtherTop});
    if (!parts.subdir.empty() && parts.last.find_first_of("${}") == parts.last.npos)
      each_in(std::string(parts.dir.substr(0, parts.dir.size() - parts.last.size() - 1)),
              {.place = Rule::Place::kOtherLast, .own = std::string(parts.last)});
  }
  std::erase_if(rules, [&](const Rule& rule) {
    const auto having = std::count_if(samples.begin(), samples.end(), [&](const std::string& item) {
      const std::optional<std::string> companion = companion_of(rule, item);
      return companion && is_there(*companion);
    });
    return static_cast<std::size_t>(having) * kFewest < samples.size();
  });
  return rules;
}

// Whether it is a mask; if it is none that could be read as one, `why_not` is set.
bool Pairing::judge_image(const Rule& rule, CompanionFiles& found) const {
  const Numbers numbers = numbers_of(found.such);
  const bool named = names_masks(rule.directory) || names_masks(last_word(rule.rest));
  const bool other_pixels = numbers != Numbers::kNone && numbers_of(found.item) == Numbers::kNone;
  if (kind_ != Draft::Kind::kImages || (!named && !other_pixels)) return false;
  found.kind =
      numbers == Numbers::kWide ? CompanionFiles::Kind::kWideMask : CompanionFiles::Kind::kMask;
  const std::string ending = ending_of(found.such);
  if (ending == "png" && numbers == Numbers::kNone)
    found.why_not = "colours, not the numbers that mode: index reads";
  if (ending == "jpg" || ending == "jpeg" || ending == "webp" || ending == "avif")
    found.why_not = "compressed with loss, which changes the numbers of masks";
  return true;
}

std::optional<CompanionFiles> Pairing::judge(const Rule& rule) const {
  CompanionFiles found;
  bool deep = false;
  for (const std::string& item : found_.items) {
    const Parts parts = parts_of(item);
    deep = deep || !(rule.place == Rule::Place::kOtherTop ? parts.subdir : parts.dir).empty();
    const std::optional<std::string> companion = companion_of(rule, item);
    if (!companion || !is_there(*companion)) continue;
    if (found.items++ == 0) {
      found.item = item;
      found.such = *companion;
    }
    if (!is_text_ending(ending_of(*companion))) continue;
    std::error_code failure;
    const std::uintmax_t size = std::filesystem::file_size(root_ + "/" + *companion, failure);
    if (!failure) found.max_bytes = std::max<std::uint64_t>(found.max_bytes, size);
  }
  // At least half of the items have one, or almost all that is there belongs to an item.
  std::uint64_t there = 0;
  if (rule.place == Rule::Place::kOtherTop || rule.place == Rule::Place::kBelow)
    there = static_cast<std::uint64_t>(
        std::count_if(files_.begin(), files_.end(), [&](const std::string& file) {
          return file.starts_with(rule.directory + "/") && file.ends_with(rule.rest);
        }));
  const bool belongs = there > 0 && found.items * 10 >= there * 9;
  if (found.items == 0 || (found.items * 2 < found_.items.size() && !belongs)) return std::nullopt;
  found.pattern = pattern_of(rule, deep);
  const std::string ending = ending_of(found.such);
  if (is_image_name(found.such)) {
    if (!judge_image(rule, found)) return std::nullopt;
  } else if (is_text_ending(ending)) {
    found.kind = CompanionFiles::Kind::kText;
    if (found.max_bytes > kMaxText) found.why_not = "long texts, which want a bound in 'batch'";
  } else {
    found.why_not = ending == "json" ? "text, and decode_json takes values out of it"
                    : ending == "npy" || ending == "npz" ? "arrays, for decode_npy"
                                                         : "comes as bytes";
  }
  return found;
}

void Pairing::name_fields(std::vector<std::pair<Rule, CompanionFiles>>& companions) const {
  std::set<std::string> taken{"image", "video", "audio", "label"};
  for (auto& [rule, each] : companions) {
    const std::string word = last_word(rule.rest);
    std::string name = lower_case(word.empty() ? rule.directory : word);
    if (each.is_mask() && !taken.contains("mask")) name = "mask";
    if (each.kind == CompanionFiles::Kind::kText &&
        (name.empty() || name.starts_with("caption") || name.starts_with("text")))
      name = kind_ == Draft::Kind::kSound ? "text" : "caption";
    if (name.empty()) name = ending_of(each.such) == "json" ? "meta" : "annotation";
    each.field = field_name(name, taken);
  }
}

std::vector<std::pair<Rule, CompanionFiles>> Pairing::companions() const {
  std::vector<std::pair<Rule, CompanionFiles>> found;
  for (const Rule& rule : rules()) {
    if (std::optional<CompanionFiles> each = judge(rule))
      found.emplace_back(rule, *std::move(each));
  }
  // The pipeline's own fields come before comments, better masks before others, and then what most
  // items have.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    const auto rank = [](const CompanionFiles& each) {
      return std::tuple(!each.why_not.empty(), mask_rank(each.such),
                        -static_cast<std::int64_t>(each.items));
    };
    return rank(a.second) < rank(b.second);
  });
  bool mask = false;
  bool text = false;
  for (auto& [rule, each] : found) {
    if (!each.why_not.empty()) continue;
    bool& one = each.is_mask() ? mask : text;
    if (one) each.why_not = each.is_mask() ? "other masks" : "other texts";
    one = true;
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const auto& each) { return each.second.why_not.empty(); });
  if (found.size() > kMostCompanions) found.resize(kMostCompanions);
  name_fields(found);
  return found;
}

void Pairing::leave_out_masks(const std::vector<std::pair<Rule, CompanionFiles>>& companions) {
  std::set<std::string> masks;
  for (const auto& [rule, each] : companions) {
    if (!each.is_mask() || rule.place != Rule::Place::kBeside) continue;
    for (const std::string& item : found_.items) {
      if (const auto mask = companion_of(rule, item)) masks.insert(*mask);
    }
    if (!rule.rest.starts_with('.')) found_.exclude.push_back("**/*" + glob_text(rule.rest));
  }
  Group items;
  for (std::string& item : found_.items) {
    if (!masks.contains(item)) items.push_back(std::move(item));
  }
  take_items(std::move(items));
}

void Pairing::find_companions() {
  std::vector<std::pair<Rule, CompanionFiles>> companions = this->companions();
  const std::size_t before = found_.items.size();
  leave_out_masks(companions);
  if (found_.items.empty()) return;
  if (found_.items.size() != before) companions = this->companions();
  for (auto& [rule, each] : companions) {
    found_.paired = found_.paired || each.is_mask();
    for (const std::string& item : found_.items) {
      const std::optional<std::string> companion = companion_of(rule, item);
      if (each.why_not.empty() && companion) brought_.insert(*companion);
    }
    found_.companions.push_back(std::move(each));
  }
}

PairedFiles Pairing::find_within(Group media) {
  std::erase_if(media, [&](const std::string& file) { return !file.starts_with(within_ + "/"); });
  if (media.empty()) return {};
  take_items(std::move(media));
  found_.pattern = glob_text(within_) + "/**/";
  find_companions();
  return std::move(found_);
}

// Looks for items in one of the directories of a level, and for their masks in others.
bool Pairing::find_beside_others(const std::vector<std::string>& media, bool at_top) {
  std::map<std::string, Group> groups;
  for (const std::string& file : media) {
    const Parts parts = parts_of(file);
    if (!at_top && parts.subdir.empty()) return false;
    groups[std::string(at_top ? parts.top : parts.last)].push_back(file);
  }
  if (groups.size() < 2 || (!at_top && groups.size() > kMostLasts)) return false;
  const Group* const chosen = choose(groups);
  if (chosen == nullptr) return false;
  take_items(*chosen);
  const Parts parts = parts_of(chosen->front());
  const std::string name = glob_text(at_top ? parts.top : parts.last);
  found_.pattern = name.empty() ? "" : at_top ? name + "/**/" : "**/" + name + "/";
  if (at_top && !name.empty()) take_split(1);
  find_companions();
  if (found_.paired) return true;
  found_ = {};
  return false;
}

PairedFiles Pairing::find() {
  list_directories();
  Group media;
  for (const std::string& file : files_) {
    if (media_kind(file) == kind_) media.push_back(file);
  }
  if (!within_.empty()) return find_within(std::move(media));
  // Directories differ at the top or, below those of scenes, at the end.
  if (kind_ == Draft::Kind::kImages &&
      (find_beside_others(media, true) || find_beside_others(media, false)))
    return std::move(found_);
  take_items(media);
  const std::string_view top = parts_of(media.front()).top;
  const bool one = !top.empty() && std::all_of(media.begin(), media.end(), [&](const auto& file) {
    return parts_of(file).top == top;
  });
  if (one) take_split(1);
  find_companions();
  std::map<std::string_view, std::set<std::string_view>> names;
  for (const std::string& file : media) {
    const Parts parts = parts_of(file);
    const auto end = static_cast<std::size_t>(parts.stem.data() + parts.stem.size() - file.data());
    names[parts.top].insert(std::string_view(file).substr(0, end).substr(parts.top.size()));
  }
  found_.alike = names.size() > 1 && std::all_of(names.begin(), names.end(), [&](const auto& each) {
                   return each.second.size() > 1 && each.second == names.begin()->second;
                 });
  return std::move(found_);
}

}  // namespace

PairedFiles pair_files(const std::string& root, const std::vector<std::string>& files,
                       Draft::Kind kind, const std::string& within) {
  Pairing pairing(root, files, kind, within);
  PairedFiles found = pairing.find();
  for (const std::string& file : files) {
    if (media_kind(file) || pairing.brings(file)) continue;
    if (found.others++ == 0) found.other = file;
  }
  return found;
}

bool is_split(std::string_view name) {
  constexpr std::array<std::string_view, 9> kSplits{
      "train", "training", "val", "valid", "validation", "test", "testing", "eval", "dev"};
  return std::find(kSplits.begin(), kSplits.end(), name) != kSplits.end();
}

std::string glob_text(std::string_view path) {
  std::string pattern;
  for (const char c : path) {
    if (std::string_view("\\{}[],*?").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace spdld::ctl
