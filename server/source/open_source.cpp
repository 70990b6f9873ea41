// SPDX-License-Identifier: Apache-2.0
#include "source/open_source.h"

#include <algorithm>
#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>

#include "source/clips_source.h"
#include "source/file/disk.h"
#include "source/file_roots.h"
#include "source/kept/dataset_id.h"
#include "source/python_source.h"
#include "source/select/where.h"
#include "source/selected_source.h"
#include "source/table_source.h"
#include "source/webdataset_source.h"

namespace spdld::source {
namespace {

struct Open {
  SourceOptions& options;

  Result<std::unique_ptr<Source>> operator()(const FilesSpec& spec) const {
    return open_file_roots(spec, std::move(options));
  }
  Result<std::unique_ptr<Source>> operator()(const TableSpec& spec) const {
    return open_table(item_file(spec), std::move(options));
  }
  Result<std::unique_ptr<Source>> operator()(const CocoSpec& spec) const {
    return open_table(item_file(spec), std::move(options));
  }
  Result<std::unique_ptr<Source>> operator()(const WebdatasetSpec& spec) const {
    return open_webdataset(spec, std::move(options));
  }
  Result<std::unique_ptr<Source>> operator()(const DatasetSpec& spec) const {
    return open_python(spec, std::move(options));
  }
};

struct Classes {
  const ClassesSpec* operator()(const FilesSpec& spec) const { return &spec.classes; }
  const ClassesSpec* operator()(const TableSpec& spec) const {
    return spec.label && spec.label->classes ? &*spec.label->classes : nullptr;
  }
  const ClassesSpec* operator()(const CocoSpec&) const { return nullptr; }
  const ClassesSpec* operator()(const WebdatasetSpec& spec) const {
    return spec.classes ? &*spec.classes : nullptr;
  }
  const ClassesSpec* operator()(const DatasetSpec&) const { return nullptr; }
};

// What a condition can use in place of bytes.
struct PartHint {
  std::string operator()(const FilesSpec&) const { return {}; }
  std::string operator()(const TableSpec&) const {
    return "what the table says of it can be taken into source.table.values";
  }
  std::string operator()(const CocoSpec&) const { return {}; }
  std::string operator()(const WebdatasetSpec&) const {
    return "what a JSON part says can be taken into source.webdataset.index, such as {width: "
           "\"json#/width\"}";
  }
  std::string operator()(const DatasetSpec&) const { return {}; }
};

struct PlaceName {
  const std::string& operator()(const FilesSpec& spec) const { return spec.root; }
  const std::string& operator()(const TableSpec& spec) const { return spec.file; }
  const std::string& operator()(const CocoSpec& spec) const { return spec.annotations; }
  const std::string& operator()(const WebdatasetSpec& spec) const { return spec.shards.front(); }
  const std::string& operator()(const DatasetSpec& spec) const { return spec.call.call; }
};

// The YAML's name of what the names of files in a table are relative to; null: none has such names.
struct RootKey {
  const char* operator()(const FilesSpec&) const { return nullptr; }
  const char* operator()(const TableSpec&) const { return "source.table.root"; }
  const char* operator()(const CocoSpec&) const { return "source.coco.root"; }
  const char* operator()(const WebdatasetSpec&) const { return nullptr; }
  const char* operator()(const DatasetSpec&) const { return nullptr; }
};

// The item from `first` on, and before `end`, that has the part; `end`: none has it.
std::uint64_t first_with_part(const Source& source, std::size_t part, std::uint64_t first,
                              std::uint64_t end) {
  while (first < end && !source.has_part(first, part)) ++first;
  return first;
}

// A root that is wrong shows in that not one of the files is there: rows would be replaced, and
// those that need not name a file would be all that an epoch has. Looks at kMostSeen files of each
// part, from all over the source, up to the first that is there. Blocks.
Status check_named_files(const Source& source, const char* root_key, const std::stop_token& stop) {
  constexpr std::uint64_t kFewest = 4;  // that tell something of the root
  const std::uint64_t spans = std::min(source.size(), Source::kMostSeen);
  for (const SourceField& field : source.fields()) {
    if (field.kind != SourceField::Kind::kPart) continue;
    std::uint64_t missing = 0;
    Status first;
    bool is_there = false;
    for (std::uint64_t i = 0; i < spans && !is_there; ++i) {
      if (stop.stop_requested()) return {Code::kCancelled, "nobody waits for the source any more"};
      const std::uint64_t end = source.size() * (i + 1) / spans;
      const std::uint64_t item =
          first_with_part(source, field.index, source.size() * i / spans, end);
      if (item == end) continue;
      const Result<std::unique_ptr<PartBytes>> file = source.open_part(item, field.index);
      // An error of another kind is that of the file, and of the batch that wants it.
      is_there = file || file.error().code() != Code::kDataLoss;
      if (is_there) continue;
      if (first.ok()) first = file.error();
      ++missing;
    }
    if (is_there || missing < kFewest) continue;
    return {Code::kNotFound, "none of the " + std::to_string(missing) + " files of '" + field.name +
                                 "' that were looked at is there; is " + root_key +
                                 " right? The first: " + first.message()};
  }
  return {};
}

Result<std::unique_ptr<Source>> select_items(const SourceSpec& spec, std::unique_ptr<Source> source,
                                             ListingMemory::SharePtr memory) {
  if (!spec.select) return source;
  UnknownNames unknown{.way_out = std::visit(PartHint(), spec.items)};
  if (spec.clips && spec.clips->sampling == ClipsSpec::Sampling::kWhole) {
    unknown.later = "duration";
    unknown.later_way_out = "write min_seconds and max_seconds in source.windows";
  }
  return select_from(std::move(source), *spec.select, std::move(unknown), std::move(memory));
}

Result<std::unique_ptr<Source>> open_items(const SourceSpec& spec, SourceOptions options) {
  // The files of what was applied may come back.
  const bool again = !options.dataset.empty();
  const std::stop_token stop = options.stop;
  ListingMemory::SharePtr memory = options.share();
  SPDLD_ASSIGN(std::unique_ptr<Source> listed, std::visit(Open{options}, spec.items));
  SPDLD_ASSIGN(std::unique_ptr<Source> source,
               select_items(spec, std::move(listed), std::move(memory)));
  const char* const root_key = std::visit(RootKey(), spec.items);
  if (root_key != nullptr && !again) SPDLD_TRY(check_named_files(*source, root_key, stop));
  return source;
}

}  // namespace

Result<std::unique_ptr<Source>> open_source(const SourceSpec& spec, SourceOptions options) {
  if (!spec.clips) return open_items(spec, std::move(options));
  const ClipsDataset dataset = split_clips_dataset(options.dataset);
  SourceOptions of_items = options.for_another();
  of_items.dataset = dataset.items;
  of_items.disk = std::move(options.disk);
  SPDLD_ASSIGN(std::unique_ptr<Source> files, open_items(spec, std::move(of_items)));
  return open_clips(std::move(files), *spec.clips, dataset.media, options);
}

const ClassesSpec* classes_of(const SourceSpec& spec) { return std::visit(Classes(), spec.items); }

const std::string& place_of(const SourceSpec& spec) { return std::visit(PlaceName(), spec.items); }

}  // namespace spdld::source
