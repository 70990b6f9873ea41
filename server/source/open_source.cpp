// SPDX-License-Identifier: Apache-2.0
#include "source/open_source.h"

#include <string>
#include <utility>
#include <variant>

#include "source/clips_source.h"
#include "source/file/disk.h"
#include "source/file_roots.h"
#include "source/kept/dataset_id.h"
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
};

struct PlaceName {
  const std::string& operator()(const FilesSpec& spec) const { return spec.root; }
  const std::string& operator()(const TableSpec& spec) const { return spec.file; }
  const std::string& operator()(const CocoSpec& spec) const { return spec.annotations; }
  const std::string& operator()(const WebdatasetSpec& spec) const { return spec.shards.front(); }
};

Result<std::unique_ptr<Source>> open_items(const SourceSpec& spec, SourceOptions options) {
  ListingMemory::SharePtr memory = options.share();
  SPDLD_ASSIGN(std::unique_ptr<Source> source, std::visit(Open{options}, spec.items));
  if (!spec.select) return source;
  UnknownNames unknown{.way_out = std::visit(PartHint(), spec.items)};
  if (spec.clips && spec.clips->sampling == ClipsSpec::Sampling::kWhole) {
    unknown.later = "duration";
    unknown.later_way_out = "write min_seconds and max_seconds in source.windows";
  }
  return select_from(std::move(source), *spec.select, std::move(unknown), std::move(memory));
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
