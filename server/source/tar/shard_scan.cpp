// SPDX-License-Identifier: Apache-2.0
#include "source/tar/shard_scan.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/text/near_names.h"
#include "base/text/printable.h"
#include "op/json_values.h"
#include "source/item/item_hashes.h"
#include "source/item/value_column.h"
#include "source/tar/archive_kind.h"
#include "source/tar/sample_groups.h"
#include "source/tar/tar_index.h"
#include "source/tar/tar_reader.h"

namespace spdld::source {
namespace {

constexpr std::uint64_t kMaxLabelBytes = 4096;
// Members and bytes between two looks at what others want.
constexpr std::uint64_t kReportEach = 256;
constexpr std::uint64_t kReportEachBytes = std::uint64_t{64} << 20;
constexpr std::size_t kShownSuffixes = 10;

struct HashFree {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// "jpg", or "jpg, jpeg or png".
std::string any_of(const std::vector<std::string>& suffixes) {
  std::string text;
  for (std::size_t i = 0; i < suffixes.size(); ++i) {
    if (i > 0) text += i + 1 == suffixes.size() ? " or " : ", ";
    text += printable(suffixes[i]);
  }
  return text;
}

// What a value takes in memory.
std::uint64_t bytes_of(const Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) return text->size();
  if (const auto* list = std::get_if<std::span<const std::int64_t>>(&value))
    return list->size_bytes();
  if (const auto* list = std::get_if<std::span<const double>>(&value)) return list->size_bytes();
  return sizeof(std::int64_t);
}

class ShardScan {
 public:
  ShardScan(FileBytes& file, const IndexQuery& query, const ShardScanOptions& options)
      : file_(file),
        base_name_(file.path().substr(file.path().rfind('/') + 1)),
        query_(query),
        options_(options),
        reader_(file),
        groups_(file.path()),
        builder_(query.spec().parts.size()),
        parts_(query.spec().parts.size()),
        labels_(query.label_suffixes().size()),
        keys_(XXH3_createState()) {
    XXH3_128bits_reset(keys_.get());
    for (const IndexQuery::JsonPart& part : query.json_parts()) json_.emplace_back(part.pointers);
    for (const std::string& field : query.value_fields()) columns_.emplace_back(field, file.path());
  }

  Result<ShardIndex> run();

 private:
  // What was read of a sample's parts before it was known to be whole.
  struct LabelText {
    bool present = false;
    std::string text;
  };
  struct JsonPart {
    explicit JsonPart(std::vector<std::vector<std::string>> pointers)
        : values(std::move(pointers)) {}
    bool present = false;
    Status failed;
    JsonValues values;
  };
  // What a sample lacks, in words; empty: nothing.
  struct Lacking {
    std::string what;
    bool is_part = false;
  };

  Status report(const TarMember& member);
  Status read_typed(const TarMember& member, const std::string& suffix);
  Status add_sample(const TarSample& sample, bool is_last);
  Status add_values(const TarSample& sample);
  void find_parts(const TarSample& sample, Lacking& lacking);
  void find_values(Lacking& lacking) const;
  const LabelText* label_text(const WebdatasetSpec::Label& label, std::string& suffix) const;
  Status lacks(const TarSample& sample, const Lacking& lacking, bool is_last) const;
  std::optional<TarMember> comes_again(const std::string& key);
  Status at_sample(const TarSample& sample, const std::string& why,
                   Code code = Code::kInvalidArgument) const;
  Result<ShardIndex> finish();

  FileBytes& file_;
  const std::string base_name_;
  const IndexQuery& query_;
  const ShardScanOptions& options_;
  TarReader reader_;
  SampleGroups groups_;
  ShardIndexBuilder builder_;
  std::vector<TarPart> parts_;
  std::vector<LabelText> labels_;  // of query_.label_suffixes()
  std::vector<JsonPart> json_;     // of query_.json_parts()
  std::vector<ValueColumn> columns_;
  std::vector<std::optional<std::int64_t>> numbers_;  // of a sample's labels; none: it has none
  const std::unique_ptr<XXH3_state_t, HashFree> keys_;
  std::uint64_t seen_ = 0;  // samples, with those that were left out
  std::uint64_t left_out_ = 0;
  std::uint64_t reported_bytes_ = 0;
  std::uint64_t reported_samples_ = 0;
};

Result<ShardIndex> ShardScan::run() {
  TarMember member;
  for (std::uint64_t count = 0;; ++count) {
    SPDLD_ASSIGN(const bool found, reader_.next(member));
    if (!found) break;
    if (count % kReportEach == 0 || member.header_offset - reported_bytes_ >= kReportEachBytes)
      SPDLD_TRY(report(member));
    SPDLD_ASSIGN(const SampleGroups::Added added, groups_.add(member));
    if (const TarSample* done = groups_.take()) SPDLD_TRY(add_sample(*done, false));
    if (added != SampleGroups::Added::kSkipped) SPDLD_TRY(read_typed(member, groups_.suffix()));
  }
  groups_.finish();
  if (const TarSample* done = groups_.take()) SPDLD_TRY(add_sample(*done, true));
  SPDLD_TRY(groups_.check_unique(file_));
  return finish();
}

Status ShardScan::report(const TarMember& member) {
  options_.meter->bytes += member.header_offset - reported_bytes_;
  const std::uint64_t before =
      options_.meter->samples.fetch_add(builder_.samples() - reported_samples_);
  reported_bytes_ = member.header_offset;
  reported_samples_ = builder_.samples();
  if (before > options_.max_samples)
    return Status(Code::kResourceExhausted, "the shards hold more than the " +
                                                std::to_string(options_.max_samples) +
                                                " samples that a source may have; name fewer");
  if (options_.stopped && options_.stopped())
    return Status(Code::kCancelled, "the index of " + file_.path() + " was stopped");
  return {};
}

// Now, while the window lies over it: most of what is read so is small.
Status ShardScan::read_typed(const TarMember& member, const std::string& suffix) {
  const std::vector<std::string>& labels = query_.label_suffixes();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != suffix) continue;
    SPDLD_ASSIGN(const std::string_view text, reader_.content(member, kMaxLabelBytes));
    labels_[i].present = true;
    labels_[i].text = text;
  }
  for (std::size_t i = 0; i < json_.size(); ++i) {
    if (query_.json_parts()[i].suffix != suffix) continue;
    SPDLD_ASSIGN(const std::string_view text, reader_.content(member, JsonValues::kMaxBytes));
    json_[i].present = true;
    json_[i].failed = json_[i].values.read(text);
  }
  return {};
}

void ShardScan::find_parts(const TarSample& sample, Lacking& lacking) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const WebdatasetSpec::Part& wanted = query_.spec().parts[i];
    parts_[i] = {};
    for (const std::string& suffix : wanted.suffixes) {
      const auto found =
          std::find_if(sample.members.begin(), sample.members.end(),
                       [&suffix](const TarSample::Member& at) { return at.suffix == suffix; });
      if (found == sample.members.end()) continue;
      parts_[i] = {.offset = found->data_offset, .size = found->size, .present = true};
      break;
    }
    if (!parts_[i].present && !wanted.optional && lacking.what.empty())
      lacking.what = "has no part for '" + wanted.field + "', " + any_of(wanted.suffixes);
  }
}

const ShardScan::LabelText* ShardScan::label_text(const WebdatasetSpec::Label& label,
                                                  std::string& suffix) const {
  const std::vector<std::string>& known = query_.label_suffixes();
  for (const std::string& wanted : label.suffixes) {
    const auto at = std::find(known.begin(), known.end(), wanted) - known.begin();
    if (!labels_[static_cast<std::size_t>(at)].present) continue;
    suffix = wanted;
    return &labels_[static_cast<std::size_t>(at)];
  }
  return nullptr;
}

void ShardScan::find_values(Lacking& lacking) const {
  std::string suffix;
  for (const WebdatasetSpec::Label& label : query_.spec().labels) {
    if (label.optional || label_text(label, suffix) != nullptr) continue;
    lacking.what = "has no part for '" + label.field + "', " + any_of(label.suffixes);
    return;
  }
  for (std::size_t i = 0; i < query_.spec().index.size(); ++i) {
    const WebdatasetSpec::IndexedValue& value = query_.spec().index[i];
    const IndexQuery::JsonPlace& place = query_.json_places()[i];
    const JsonPart& part = json_[place.part];
    if (value.optional) continue;
    if (!part.present) {
      lacking.what = "has no part for '" + value.field + "', " + printable(value.suffix);
      return;
    }
    // What could not be read is another matter.
    if (!part.failed.ok() || part.values.value(place.pointer)) continue;
    lacking.what = "has nothing for '" + value.field + "': its " + printable(value.suffix) +
                   " has no value at '" + printable(value.pointer) + "'";
    return;
  }
}

Status ShardScan::at_sample(const TarSample& sample, const std::string& why, Code code) const {
  return Status(code, file_.path() + ": at byte " + std::to_string(sample.header_offset) +
                          ", sample '" + printable(sample.key) + "' " + why);
}

// A member of the sample in the rest of the shard, which is not scanned any more.
std::optional<TarMember> ShardScan::comes_again(const std::string& key) {
  TarMember member;
  for (std::uint64_t count = 0;; ++count) {
    const Result<bool> found = reader_.next(member);
    if (!found || !*found) return std::nullopt;
    if (count % kReportEach == 0 && options_.stopped && options_.stopped()) return std::nullopt;
    Skipped ignored{};
    const auto name = sample_name(member.name, ignored);
    if (member.type == TarMember::Type::kFile && name && name->key == key) return member;
  }
}

Status ShardScan::lacks(const TarSample& sample, const Lacking& lacking, bool is_last) const {
  std::vector<std::string> there;
  for (const TarSample::Member& member : sample.members) {
    if (there.size() == kShownSuffixes) {
      there.emplace_back("...");
      break;
    }
    there.push_back(printable(member.suffix));
  }
  std::string why = lacking.what + "; it has " + listed_names(there);
  // A sample that was cut in two is that at the ends of shards alone.
  constexpr const char* kSplit =
      " a sample that was split over two shards is two samples, each of which lacks parts: pack "
      "those shards anew";
  if (lacking.is_part && seen_ == 1) {
    why +=
        "; if all samples are like this one, correct source.webdataset.fields; if it alone is, "
        "being the first of its shard,";
    why += kSplit;
  } else if (lacking.is_part && is_last) {
    why += "; it is the last of its shard, and";
    why += kSplit;
  }
  const std::uint64_t links = groups_.skipped()[static_cast<std::size_t>(Skipped::kLink)];
  if (links > 0)
    why += "; " + std::to_string(links) +
           " links were passed over so far: 'tar --dereference --hard-dereference' packs what they "
           "lead to";
  return at_sample(sample, why +
                               "; 'source.webdataset.missing: skip' leaves such samples out, and "
                               "'optional: [NAME]' keeps them");
}

Status ShardScan::add_values(const TarSample& sample) {
  const WebdatasetSpec& spec = query_.spec();
  numbers_.clear();
  std::string suffix;
  for (const WebdatasetSpec::Label& label : spec.labels) {
    const LabelText* const text = label_text(label, suffix);
    if (text == nullptr) {
      numbers_.emplace_back();
      continue;
    }
    const Result<std::int64_t> number = query_.label(suffix, text->text);
    if (!number)
      return at_sample(sample, "has a wrong '" + label.field + "': its " + suffix + " " +
                                   number.error().message());
    numbers_.push_back(*number);
  }
  for (const JsonPart& part : json_) {
    const std::size_t i = static_cast<std::size_t>(&part - json_.data());
    if (part.present && !part.failed.ok())
      return at_sample(sample, "cannot be indexed: its " +
                                   printable(query_.json_parts()[i].suffix) + " " +
                                   part.failed.message());
  }
  std::size_t presence = numbers_.size() + spec.index.size();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (spec.parts[i].optional) SPDLD_TRY(columns_[presence++].add(parts_[i].present, sample.key));
  }
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    SPDLD_TRY(columns_[i].add(numbers_[i].value_or(0), sample.key));
    if (spec.labels[i].optional)
      SPDLD_TRY(columns_[presence++].add(numbers_[i].has_value(), sample.key));
  }
  for (std::size_t i = 0; i < spec.index.size(); ++i) {
    const IndexQuery::JsonPlace& place = query_.json_places()[i];
    ValueColumn& column = columns_[numbers_.size() + i];
    const std::optional<Value> found =
        json_[place.part].present ? json_[place.part].values.value(place.pointer) : std::nullopt;
    if (spec.index[i].optional) SPDLD_TRY(columns_[presence++].add(found.has_value(), sample.key));
    if (!found) {
      column.add_absent();
      continue;
    }
    const Value value = *found;
    SPDLD_TRY(column.add(value, sample.key));
    const std::uint64_t taken = bytes_of(value);
    if (options_.meter->value_bytes.fetch_add(taken, std::memory_order_relaxed) + taken >
        options_.max_value_bytes)
      return at_sample(sample,
                       "takes the values of source.webdataset.index beyond the " +
                           std::to_string(options_.max_value_bytes) +
                           " bytes that may be held of them; take '" + spec.index[i].field +
                           "' out of the sample when it is read: 'decode_json'",
                       Code::kResourceExhausted);
  }
  return {};
}

Status ShardScan::add_sample(const TarSample& sample, bool is_last) {
  ++seen_;
  Lacking lacking;
  find_parts(sample, lacking);
  lacking.is_part = !lacking.what.empty();
  if (!lacking.is_part) find_values(lacking);
  const bool kept = lacking.what.empty();
  if (!kept && query_.spec().missing == WebdatasetSpec::Missing::kError) {
    // A shard that is packed by kind, or as a directory gave its files.
    if (const std::optional<TarMember> apart = comes_again(sample.key))
      return at_sample(sample, lacking.what + " beside it, and goes on at byte " +
                                   std::to_string(apart->header_offset) +
                                   ", with other keys between; the members of a sample lie side by "
                                   "side: pack the shard anew in the order of names: " +
                                   repack_command(file_.path()));
    return lacks(sample, lacking, is_last);
  }
  if (kept) {
    SPDLD_TRY(add_values(sample));
    builder_.add(sample.header_offset, parts_, split_hash(tar_uri(base_name_, sample.key)));
    // With what ends it: keys hold no zero byte.
    XXH3_128bits_update(keys_.get(), sample.key.c_str(), sample.key.size() + 1);
  } else {
    ++left_out_;
  }
  for (LabelText& label : labels_) label.present = false;
  for (JsonPart& part : json_) part.present = false;
  return {};
}

Result<ShardIndex> ShardScan::finish() {
  if (reader_.has_global_names())
    return error(Code::kInvalidArgument,
                 file_.path() +
                     ": a global pax header gives all members one name or size, so that "
                     "none can be read alone; pack the shard anew");
  ShardIndex index = std::move(builder_).finish();
  index.path = file_.path();
  index.skipped = groups_.skipped();
  index.skipped[static_cast<std::size_t>(Skipped::kSample)] = left_out_;
  const XXH128_hash_t hash = XXH3_128bits_digest(keys_.get());
  index.keys_digest = {hash.high64, hash.low64};
  std::vector<Columns::Info> infos;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    infos.push_back({.name = query_.value_fields()[i], .type = columns_[i].type(), .max_bytes = 0});
    index.value_keys.push_back(columns_[i].key());
  }
  ColumnsBuilder values(std::move(infos));
  for (std::size_t i = 0; i < columns_.size(); ++i) columns_[i].copy_to(values, i);
  index.values = std::move(values).finish();
  options_.meter->samples += index.samples() - reported_samples_;
  options_.meter->bytes += file_.size() - reported_bytes_;
  if (options_.warnings != nullptr)
    options_.warnings->insert(options_.warnings->end(), reader_.warnings().begin(),
                              reader_.warnings().end());
  return index;
}

}  // namespace

Result<ShardIndex> scan_shard(FileBytes& file, const IndexQuery& query,
                              const ShardScanOptions& options) {
  return ShardScan(file, query, options).run();
}

}  // namespace spdld::source
