// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/init/survey.h"

namespace spdld::ctl {
namespace {

using CocoJson = nlohmann::json;

constexpr std::size_t kNames = 5;

// Counts what an annotation file has, of whatever size, and keeps the first files' names.
class Counter final : public nlohmann::json_sax<CocoJson> {
 public:
  std::uint64_t images = 0;
  std::uint64_t annotations = 0;
  std::uint64_t boxes = 0;
  std::uint64_t categories = 0;
  std::vector<std::string> names;
  bool is_list = false;     // at the top
  bool has_shards = false;  // a key at the top
  std::string what_is_wrong;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& text) override {
    if (in_entry() && list_ == "images" && key_ == "file_name" && names.size() < kNames)
      names.push_back(text);
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    if (depth_ == 1) list_ = name;
    has_shards = has_shards || (depth_ == 1 && name == "shards");
    if (in_entry() && list_ == "annotations" && name == "bbox") ++boxes;
    return true;
  }
  bool start_object(std::size_t) override {
    if (++depth_ != kEntry) return true;
    if (list_ == "images") ++images;
    if (list_ == "annotations") ++annotations;
    if (list_ == "categories") ++categories;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override {
    is_list = is_list || depth_ == 0;
    ++depth_;
    return true;
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t at, const std::string&, const CocoJson::exception&) override {
    what_is_wrong = fmt::format("is no JSON from byte {} on", at);
    return false;
  }

 private:
  static constexpr int kEntry = 3;  // {"images": [{

  bool in_entry() const { return depth_ == kEntry; }
  bool close() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  std::string list_;  // the key at the top
  std::string key_;
};

}  // namespace

Draft survey_coco(const std::string& path, const std::optional<std::string>& root) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Failure(kWrongUsage, fmt::format("cannot open {}: {}", printable(path),
                                           std::generic_category().message(errno)));
  Counter counter;
  if (!CocoJson::sax_parse(file, &counter)) fail_of_file(path, counter.what_is_wrong);
  if (counter.is_list)
    fail_of_file(
        path,
        "is one list, as LLaVA's rows are; a table has an object a line, which jq makes of "
        "it: jq -c '.[]' FILE > FILE.jsonl");
  if (counter.has_shards)
    fail_of_file(path, fmt::format("lists the shards of MosaicML's streaming: {}",
                                   foreign_file("x.mds")->what));
  if (counter.names.empty())
    fail_of_file(
        path,
        "is JSON, but no COCO annotations: it has no list 'images' with a file_name each; a table "
        "is a .jsonl, with one object a line");
  if (counter.boxes == 0)
    fail_of_file(
        path,
        "has images, but no annotation with a bbox; a pipeline reads the annotations of object "
        "detection, such as instances_train2017.json");
  const std::optional<std::string> found = find_root(path, counter.names, root);
  if (!found)
    fail_of_file(path,
                 fmt::format("names images such as {}, which {}; say by --root DIR where they lie",
                             printable(counter.names.front()),
                             root ? fmt::format("are not all below {}", printable(*root))
                                  : "are not beside it, nor in a folder near it"));
  Draft draft{.path = path, .root = *found, .items = counter.images, .boxes = true};
  draft.seen.push_back(fmt::format("{}, {}, {}.", counted(counter.images, "image"),
                                   counted(counter.annotations, "annotation"),
                                   counted(counter.categories, "category", "categories")));
  draft.seen.push_back(fmt::format("{} lies in {}.", counter.names.front(), *found));
  draft.source = {"coco:", "  annotations: " + yaml_text(path), "  root: \"${root}\""};
  return draft;
}

}  // namespace spdld::ctl
