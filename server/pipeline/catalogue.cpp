// SPDX-License-Identifier: Apache-2.0
#include "pipeline/catalogue.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"
#include "pipeline/listed_sources.h"
#include "source/file/text_file.h"
#include "source/kept/kept_datasets.h"
#include "source/open_source.h"
#include "spec/parse.h"

namespace spdld::pipeline {
namespace {

constexpr std::size_t kMaxWarnings = 50;
// What was listed and is not on record yet, by a preview or an apply under way, is let be so long.
constexpr std::chrono::hours kCollectAfter{1};

std::string digest_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return hex;
}

// A pipeline's canonical text without what may change while it runs: how many samples may be in a
// stage at once.
std::string untuned(const std::string& canonical_text) {
  auto text = nlohmann::json::parse(canonical_text, nullptr, false);
  if (text.is_discarded() || !text.contains("stages")) return canonical_text;
  for (auto& stage : text["stages"]) {
    if (!stage.is_object()) continue;
    for (auto& params : stage) {
      if (params.is_object()) params.erase("concurrency");
    }
  }
  return text.dump();
}

// Classes that do not come from the data themselves, and that `other` has just so.
bool same_classes(const SourceSpec& source, const spec::PipelineSpec& other) {
  const ClassesSpec* const classes = source::classes_of(source);
  const ClassesSpec* const others = source::classes_of(other.source);
  const bool elsewhere = classes != nullptr && (classes->kind == ClassesSpec::Kind::kPipeline ||
                                                classes->kind == ClassesSpec::Kind::kFile);
  return elsewhere && others != nullptr && *classes == *others;
}

Result<std::shared_ptr<const source::Lengths>> lengths_of(const source::Source& source,
                                                          const spec::PipelineSpec& spec,
                                                          ListingMemory::SharePtr memory) {
  auto lengths = source::Lengths::read(source, spec.shuffle.bucket->by, std::move(memory));
  if (!lengths)
    return tl::unexpected<Status>(
        lengths.error().with_context(spec.lengths_where.text() + ": shuffle.global.bucket.by"));
  return lengths;
}

// Whether `spec` goes by the lengths that `base` has, of the items of the same source.
bool same_lengths(const spec::PipelineSpec& spec, const PipelineVersion& base) {
  const auto& now = spec.shuffle.bucket;
  const auto& before = base.plan->spec.shuffle.bucket;
  return now && before && now->by == before->by;
}

Credentials reader_of(uid_t owner, const std::optional<Credentials>& reader) {
  return reader ? *reader : Credentials::of_user(owner);
}

// What tells one listing from another: all that its outcome depends on, but the files.
class ListingKey {
 public:
  ListingKey(const source::AccessRules& rules, const std::string& kind) : rules_(rules) {
    add(kind);
  }

  ListingKey& add(const std::string& text) {
    text_ += std::to_string(text.size()) + ":" + text + ",";
    return *this;
  }
  ListingKey& add(const char* text) = delete;
  ListingKey& add(std::integral auto number) { return add(std::to_string(number)); }
  template <typename T>
  ListingKey& add(const std::optional<T>& some) {
    add(some.has_value());
    return some ? add(*some) : *this;
  }
  ListingKey& add(const std::map<std::string, std::string>& entries) {
    add(entries.size());
    for (const auto& [name, value] : entries) add(name).add(value);
    return *this;
  }
  ListingKey& add(const Credentials& reader) {
    const Credentials as = rules_.normalized(reader);
    add(as.uid).add(as.gid).add(as.groups.size());
    for (const gid_t group : as.groups) add(group);
    return *this;
  }
  ListingKey& add(const job::PipelineOwner& owner) { return add(owner.uid).add(owner.shared); }
  ListingKey& add(const job::ApplyRequest& request) {
    add(request.yaml).add(request.file).add(request.vars).add(request.env).add(request.dataset);
    add(request.bucket_run).add(request.from_loader).add(request.reader);
    for (const auto& [field, size] : request.image_sizes)
      add(field).add(size.width).add(size.height);
    return *this;
  }
  ListingKey& add(const PipelineVersion& pipeline) {
    return add(pipeline.id())
        .add(pipeline.version)
        .add(pipeline.content_digest)
        .add(pipeline.request.dataset)
        .add(pipeline.reader);
  }
  std::string text() const { return digest_of(text_); }

 private:
  const source::AccessRules& rules_;
  std::string text_;
};

}  // namespace

source::Order PipelineVersion::order() const {
  return {.listing_digest = source->listing_digest(),
          .items = source->size(),
          .shuffle = plan->spec.shuffle,
          .lengths_digest = lengths_digest};
}

Result<source::Sampler> PipelineVersion::sampler(std::uint64_t seed) const {
  Shuffle shuffle = plan->spec.shuffle;
  if (closed) shuffle.bucket.reset();
  auto sampler = source::Sampler::counted(source->size(), shuffle, seed, lengths, reader.uid);
  if (!sampler)
    return tl::unexpected<Status>(sampler.error().with_context("pipeline '" + name() + "'"));
  return sampler;
}

std::vector<std::string> PipelineVersion::warnings() const {
  std::vector<std::string> warnings;
  if (listed != nullptr) warnings = listed->warnings();
  for (const std::string& doubt : plan->doubts)
    warnings.push_back("pipeline '" + name() + "': " + doubt);
  return warnings;
}

std::uint64_t PipelineVersion::replace_budget() const {
  const auto& policy = plan->spec.on_error;
  const double share = policy.budget_fraction * static_cast<double>(source->size());
  return std::max(static_cast<std::uint64_t>(policy.budget_min),
                  static_cast<std::uint64_t>(std::llround(share)));
}

std::string PipelineVersion::text_digest() const { return digest_of(plan->spec.canonical_text); }

Catalogue::Catalogue(CatalogueOptions options, Registry registry, source::IoPool& io,
                     engine::SampleCaches& caches)
    : options_(std::move(options)),
      registry_(std::move(registry)),
      io_(io),
      caches_(caches),
      trusted_(options_.admins, options_.access.trust_root),
      kept_(options_.state_dir.empty()
                ? nullptr
                : std::make_unique<source::KeptDatasets>(options_.state_dir + "/listings")),
      listings_({.per_user = options_.listings_per_user}) {}

Catalogue::~Catalogue() = default;

Result<spec::PipelineSpec> Catalogue::parse(uid_t owner, const job::ApplyRequest& request) {
  spec::ParseOptions options;
  options.vars = request.vars;
  options.bucket_run = request.bucket_run;
  options.env = [&request](const std::string& name) -> std::optional<std::string> {
    const auto found = request.env.find(name);
    if (found == request.env.end()) return std::nullopt;
    return found->second;
  };
  const bool has_file = request.file.starts_with('/');
  if (has_file) options.directory = std::filesystem::path(request.file).parent_path().string();
  const source::Access access(options_.access, reader_of(owner, request.reader));
  options.read_file = [&access](const std::string& path) {
    return source::read_text(access, path, spec::kMaxFileBytes);
  };
  return spec::parse_pipeline(request.yaml, has_file ? request.file : "pipeline", registry_,
                              options);
}

Result<std::unique_ptr<source::Source>> Catalogue::open_source(
    const spec::PipelineSpec& spec, const job::PipelineOwner& owner, const std::string& dataset,
    ListedSources& of, const PipelineVersion* varied, const Credentials& reader,
    const Progress& progress, bool from_kept_alone) {
  source::SourceOptions options(io_);
  options.kept = kept_.get();
  options.prober = options_.prober;
  options.dataset = dataset;
  options.from_kept_alone = from_kept_alone;
  options.access = options_.access;
  options.reader = reader;
  options.retry = spec.on_error.io;
  options.fail_on_bad_rows = spec.on_error.decode == spec::ErrorPolicy::OnDecode::kFail;
  options.buffers = options_.buffers;
  options.memory = options_.memory;
  const ClassesSpec* const classes = source::classes_of(spec.source);
  if (varied != nullptr && same_classes(spec.source, varied->plan->spec)) {
    // Classes that do not come from the files are those that were applied.
    options.classes = varied->source->classes();
  } else if (dataset.empty() && classes != nullptr &&
             classes->kind == ClassesSpec::Kind::kPipeline) {
    // A user's own name counts before the shared one, also if it cannot be opened.
    const std::string own = pipeline_id(owner, classes->pipeline);
    const bool is_own = find(own) != nullptr || is_lost(own);
    const std::string& id = is_own ? own : classes->pipeline;
    if (find(id) == nullptr && !is_lost(id))
      return error(Code::kNotFound, "pipeline '" + spec.name + "' takes its classes from '" +
                                        classes->pipeline +
                                        "', which is not there: apply that one first");
    SPDLD_ASSIGN(const PipelinePtr other, get(id, owner.uid, classes->pipeline));
    // Its classes are names of directories, or stand in a file.
    SPDLD_ASSIGN(const PipelinePtr open, open_now(other, progress));
    SPDLD_ASSIGN(const PipelinePtr readable, read_by(open, reader));
    options.classes = readable->source->classes();
  }
  std::stop_source stop;
  options.stop = stop.get_token();
  options.progress = [&](std::uint64_t seen, const std::string& what) {
    const std::string doing = what.empty() ? "listing " + source::place_of(spec.source) : what;
    if (progress && !progress(seen, doing)) stop.request_stop();
  };
  std::vector<std::string> warnings;
  options.warnings = &warnings;
  auto opened = source::open_source(spec.source, std::move(options));
  if (!opened)
    return tl::unexpected<Status>(opened.error().with_context("pipeline '" + spec.name + "'"));
  std::unique_ptr<source::Source> source = std::move(opened).value();
  for (std::string& warning : warnings) {
    warning = "pipeline '" + spec.name + "': " + warning;
    spdlog::warn("{}", warning);
  }
  of.add(spec.source, source->dataset(), std::move(warnings));
  return source;
}

std::shared_ptr<source::Source> Catalogue::shared(std::unique_ptr<source::Source> source) const {
  if (options_.reaper == nullptr) return source;
  return options_.reaper->share(std::move(source));
}

Status Catalogue::check_limits(const engine::Plan& plan) const {
  std::int64_t most = 0;
  for (const auto& task : plan.tasks) most = std::max(most, task->max_pixels());
  if (most > options_.max_pixels)
    return Status(Code::kInvalidArgument,
                  "pipeline '" + plan.spec.name + "': decode_image.max_pixels is " +
                      std::to_string(most) + ", and the daemon allows " +
                      std::to_string(options_.max_pixels) +
                      "; lower it, or have limits.max_pixels raised in the daemon's configuration");
  const engine::Plan::KnownRow row = plan.known_row();
  if (row.bytes <= options_.row_memory_bytes) return {};
  return Status(Code::kInvalidArgument,
                "pipeline '" + plan.spec.name + "': each row takes " + std::to_string(row.bytes) +
                    " bytes of memory, most of them for '" + row.field + "' (" + row.ops +
                    "), and limits.row_memory is " + std::to_string(options_.row_memory_bytes) +
                    ": lower the sizes or lengths that its stages ask for, or have that raised in "
                    "the daemon's configuration");
}

Result<PipelinePtr> Catalogue::assemble(const job::PipelineOwner& owner,
                                        const job::ApplyRequest& request, spec::PipelineSpec spec,
                                        std::shared_ptr<source::Source> source,
                                        std::shared_ptr<ListedSources> listed, Credentials reader,
                                        std::shared_ptr<const source::Lengths> lengths,
                                        bool looks) {
  auto pipeline = std::make_shared<PipelineVersion>();
  pipeline->owner = owner;
  pipeline->request = request;
  pipeline->reader = normalized(std::move(reader));
  pipeline->request.dataset = source->dataset();
  pipeline->listed = std::move(listed);
  if (spec.shuffle.bucket) {
    pipeline->request.bucket_run = spec.shuffle.bucket->run;
    if (lengths == nullptr) {
      SPDLD_ASSIGN(lengths,
                   lengths_of(*source, spec, options_.memory->share(pipeline->reader.uid)));
    }
    pipeline->lengths = std::move(lengths);
    pipeline->lengths_digest = pipeline->lengths->digest();
  }
  std::string made_of =
      "\nbatch " + std::to_string(spec.batch.size) + "\nlisting " + source->listing_digest();
  // The same files make other labels when a class comes that has none, or a file of names changes.
  for (const std::string& name : source->classes()) made_of += "\nclass " + name;
  if (const std::string values = source->values_digest(); !values.empty())
    made_of += "\nvalues " + values;
  if (pipeline->lengths != nullptr) made_of += "\nlengths " + pipeline->lengths_digest;
  std::map<std::string, Size>& image_sizes = pipeline->request.image_sizes;
  image_sizes.clear();
  const auto sizes = [&](const std::string& field, std::size_t part, const DecodeImageOp& op) {
    const auto known = request.image_sizes.find(field);
    engine::PictureSizes seen;
    if (known != request.image_sizes.end()) {
      seen.one = known->second;
    } else if (looks) {
      seen = engine::look_at_images(*source, part, op);
    }
    if (seen.one) image_sizes[field] = *seen.one;
    return seen;
  };
  SPDLD_ASSIGN(pipeline->plan,
               engine::compile(std::move(spec), registry_, source->fields(), sizes));
  for (const auto& [field, size] : image_sizes)
    made_of +=
        "\nimages " + field + " " + std::to_string(size.width) + "x" + std::to_string(size.height);
  const std::string& text = pipeline->plan->spec.canonical_text;
  pipeline->work_digest = digest_of(untuned(text) + made_of);
  pipeline->content_digest = digest_of(text + made_of);
  SPDLD_TRY(check_limits(*pipeline->plan));
  pipeline->classes = source->classes().size();
  pipeline->source = std::move(source);
  if (pipeline->plan->spec.cache) {
    SPDLD_TRY(caches_.check(*pipeline->plan));
    if (looks) pipeline->cache = caches_.estimate(*pipeline->plan, *pipeline->source);
  }
  return PipelinePtr(std::move(pipeline));
}

Result<PipelinePtr> Catalogue::build(const job::PipelineOwner& owner,
                                     const job::ApplyRequest& request, const Progress& progress) {
  // Who applies wants what is there now, and not what another call has listed before.
  const std::string serial =
      request.from_loader || !request.dataset.empty() ? std::string() : std::to_string(++serial_);
  return wait<PipelinePtr>(
      progress, [&](const ListingAsker& asker) { return build(owner, request, serial, asker); });
}

Asked<PipelinePtr> Catalogue::build(const job::PipelineOwner& owner,
                                    const job::ApplyRequest& request, const ListingAsker& asker) {
  return build(owner, request, {}, asker);
}

Asked<PipelinePtr> Catalogue::build(const job::PipelineOwner& owner,
                                    const job::ApplyRequest& request, const std::string& serial,
                                    const ListingAsker& asker) {
  const Credentials reader = reader_of(owner.uid, request.reader);
  return ask<PipelinePtr>(
      reader.uid,
      ListingKey(options_.access, "build").add(serial).add(owner).add(request).add(reader).text(),
      [this, owner, request, reader](const Progress& progress) {
        return build_now(owner, request, reader, progress);
      },
      asker);
}

Result<PipelinePtr> Catalogue::build_now(const job::PipelineOwner& owner,
                                         const job::ApplyRequest& request,
                                         const Credentials& reader, const Progress& progress) {
  return with_room(reader.uid, [&]() -> Result<PipelinePtr> {
    SPDLD_ASSIGN(spec::PipelineSpec spec, parse(owner.uid, request));
    auto listed = std::make_shared<ListedSources>();
    SPDLD_ASSIGN(std::unique_ptr<source::Source> source,
                 open_source(spec, owner, request.dataset, *listed, nullptr, reader, progress));
    return assemble(owner, request, std::move(spec), shared(std::move(source)), std::move(listed),
                    reader);
  });
}

Result<PipelineText> Catalogue::text_of(uid_t owner, const job::ApplyRequest& request,
                                        const Progress& progress) {
  return wait<PipelineText>(
      progress, [&](const ListingAsker& asker) { return text_of(owner, request, asker); });
}

Asked<PipelineText> Catalogue::text_of(uid_t owner, const job::ApplyRequest& request,
                                       const ListingAsker& asker) {
  if (request.yaml.find("extends") == std::string::npos) {
    SPDLD_ASSIGN(PipelineText text, parse_text(owner, request));
    return std::optional(std::move(text));
  }
  const Credentials reader = reader_of(owner, request.reader);
  return ask<PipelineText>(
      reader.uid, ListingKey(options_.access, "text").add(owner).add(request).add(reader).text(),
      [this, owner, request](const Progress&) { return parse_text(owner, request); }, asker);
}

Result<PipelineText> Catalogue::parse_text(uid_t owner, const job::ApplyRequest& request) {
  SPDLD_ASSIGN(const spec::PipelineSpec spec, parse(owner, request));
  return PipelineText{
      .name = spec.name, .digest = digest_of(spec.canonical_text), .vars = spec.vars};
}

Result<PipelinePtr> Catalogue::variant(const PipelinePtr& base,
                                       const std::map<std::string, std::string>& vars,
                                       std::optional<std::uint64_t> batch_size,
                                       const Credentials& reader, const Progress& progress,
                                       VariantFiles files) {
  return wait<PipelinePtr>(progress, [&](const ListingAsker& asker) {
    return variant(base, vars, batch_size, reader, asker, files);
  });
}

Asked<PipelinePtr> Catalogue::variant(const PipelinePtr& base,
                                      const std::map<std::string, std::string>& vars,
                                      std::optional<std::uint64_t> batch_size,
                                      const Credentials& reader, const ListingAsker& asker,
                                      VariantFiles files) {
  SPDLD_ASSIGN(const std::optional<PipelinePtr> open, opened(base, asker));
  if (!open) return open;
  const auto batch = static_cast<std::uint64_t>((*open)->plan->spec.batch.size);
  const bool same = vars.empty() && batch_size.value_or(batch) == batch;
  if (same && is_trusted_reader(**open, reader)) return open;
  const Variation variation{
      .vars = vars, .batch_size = batch_size, .reader = reader, .files = files};
  return ask<PipelinePtr>(
      reader.uid,
      ListingKey(options_.access, "variant")
          .add(**open)
          .add(vars)
          .add(batch_size)
          .add(reader)
          .add(files == VariantFiles::kNow)
          .text(),
      [this, open = *open, variation](const Progress& progress) {
        return with_room(variation.reader.uid,
                         [&] { return variant_of(open, variation, progress); });
      },
      asker);
}

Result<PipelinePtr> Catalogue::variant_of(const PipelinePtr& base, const Variation& variation,
                                          const Progress& progress) {
  const auto& [vars, batch_size, reader, which] = variation;
  const auto batch = static_cast<std::uint64_t>(base->plan->spec.batch.size);
  if (vars.empty() && batch_size.value_or(batch) == batch) return read_by(base, reader);
  job::ApplyRequest request = base->request;
  for (const auto& [name, value] : vars) request.vars[name] = value;
  SPDLD_ASSIGN(spec::PipelineSpec spec, parse(base->owner.uid, request));
  if (batch_size) {
    constexpr std::uint64_t kMaxBatch = 65536;
    if (*batch_size == 0 || *batch_size > kMaxBatch)
      return error(Code::kInvalidArgument, "a batch size of " + std::to_string(*batch_size) +
                                               " is not between 1 and " +
                                               std::to_string(kMaxBatch));
    spec.batch.size = static_cast<std::int64_t>(*batch_size);
  }
  std::shared_ptr<source::Source> source;
  std::shared_ptr<const source::Lengths> lengths;
  if (spec.source != base->plan->spec.source) {
    const std::string dataset =
        which == VariantFiles::kNow ? std::string() : base->listed->dataset(spec.source);
    SPDLD_ASSIGN(auto opened, open_source(spec, base->owner, dataset, *base->listed, base.get(),
                                          reader, progress));
    source = shared(std::move(opened));
    request.image_sizes.clear();
  } else {
    SPDLD_ASSIGN(const PipelinePtr readable, read_by(base, reader));
    source = readable->source;
    if (same_lengths(spec, *base)) lengths = base->lengths;
  }
  auto made = assemble(base->owner, request, std::move(spec), std::move(source), base->listed,
                       reader, std::move(lengths));
  if (!made) return made;
  auto pipeline = std::make_shared<PipelineVersion>(**made);
  pipeline->version = base->version;
  return PipelinePtr(std::move(pipeline));
}

bool Catalogue::is_trusted_reader(const PipelineVersion& pipeline,
                                  const Credentials& reader) const {
  const Credentials as = normalized(reader);
  return as == pipeline.reader && options_.access.trusts(as);
}

Result<PipelinePtr> Catalogue::read_by(const PipelinePtr& base, const Credentials& reader) const {
  if (is_trusted_reader(*base, reader)) return base;
  const Credentials as = normalized(reader);
  // Rights may have been withdrawn since they were asked for.
  const bool same = as == base->reader;
  auto source = base->source->read_by(as);
  if (!source)
    return tl::unexpected<Status>(source.error().with_context("pipeline '" + base->name() + "'"));
  if (same) return base;
  auto readable = std::make_shared<PipelineVersion>(*base);
  readable->reader = as;
  if (*source != nullptr) readable->source = shared(*std::move(source));
  return PipelinePtr(std::move(readable));
}

Result<PipelinePtr> Catalogue::rebuild(const job::PipelineOwner& owner,
                                       const job::ApplyRequest& request, std::uint32_t version,
                                       std::optional<std::uint64_t> batch_size,
                                       const std::optional<Credentials>& reader,
                                       const Progress& progress) {
  return wait<PipelinePtr>(progress, [&](const ListingAsker& asker) {
    return rebuild(owner, request, version, batch_size, reader, asker);
  });
}

Asked<PipelinePtr> Catalogue::rebuild(const job::PipelineOwner& owner,
                                      const job::ApplyRequest& request, std::uint32_t version,
                                      std::optional<std::uint64_t> batch_size,
                                      const std::optional<Credentials>& reader,
                                      const ListingAsker& asker) {
  const Credentials as = reader_of(owner.uid, reader ? reader : request.reader);
  return ask<PipelinePtr>(
      as.uid,
      ListingKey(options_.access, "rebuild")
          .add(owner)
          .add(request)
          .add(version)
          .add(batch_size)
          .add(as)
          .text(),
      [=, this](const Progress& progress) -> Result<PipelinePtr> {
        SPDLD_ASSIGN(PipelinePtr made, build_now(owner, request, as, progress));
        if (batch_size) {
          const Variation sized{.vars = {}, .batch_size = batch_size, .reader = as};
          SPDLD_ASSIGN(made, with_room(as.uid, [&] { return variant_of(made, sized, progress); }));
        }
        auto numbered = std::make_shared<PipelineVersion>(*made);
        numbered->version = version;
        return PipelinePtr(std::move(numbered));
      },
      asker);
}

Result<std::shared_ptr<engine::SampleCache>> Catalogue::open_cache(
    const PipelineVersion& pipeline) const {
  if (!pipeline.cache) return std::shared_ptr<engine::SampleCache>();
  return caches_.open(*pipeline.plan, *pipeline.source, *pipeline.cache);
}

std::vector<std::string> Catalogue::warnings(uid_t caller) const {
  std::vector<std::string> warnings;
  std::set<std::string> names;
  for (const PipelinePtr& pipeline : visible_to(caller)) {
    names.insert(pipeline->plan->spec.name);
    for (std::string& warning : pipeline->warnings()) {
      if (warnings.size() < kMaxWarnings) warnings.push_back(std::move(warning));
    }
  }
  for (std::string& warning : caches_.unused(names)) warnings.push_back(std::move(warning));
  for (const engine::SampleCache::Snapshot& cache : cache_snapshots(caller)) {
    if (!cache.why.empty()) warnings.push_back("cache " + cache.name + ": " + cache.why);
  }
  return warnings;
}

std::vector<engine::SampleCache::Snapshot> Catalogue::cache_snapshots(uid_t caller) const {
  std::vector<engine::SampleCache::Snapshot> caches = caches_.snapshots();
  if (is_admin(caller)) return caches;
  std::set<std::string> origins;
  for (const PipelinePtr& pipeline : visible_to(caller)) origins.insert(pipeline->source->origin());
  for (engine::SampleCache::Snapshot& cache : caches) {
    if (!origins.contains(cache.origin))
      cache.name = std::string(name_of(cache.form)) + " data of another user";
  }
  return caches;
}

std::string Catalogue::change_of(const PipelineVersion& pipeline, const Progress& progress) {
  if (!pipeline.source->has_changed()) return {};
  const std::string& root = source::place_of(pipeline.plan->spec.source);
  const std::uint64_t applied = pipeline.source->size();
  ListedSources unkept;
  const auto now = open_source(pipeline.plan->spec, pipeline.owner, "", unkept, nullptr,
                               pipeline.reader, progress);
  std::string found = root + " has changed since";
  if (now) {
    if ((*now)->listing_digest() == pipeline.source->listing_digest() &&
        (*now)->values_digest() == pipeline.source->values_digest())
      return {};
    const std::uint64_t items = (*now)->size();
    found = root + " lists " +
            (items == applied ? std::to_string(items) + " others" : counted(items, "item")) +
            " now";
  }
  return "pipeline '" + pipeline.name() + "' was applied with " + counted(applied, "item") +
         ", and goes on with them; " + found +
         ": Loader(..., replace=True) or 'spdlctl apply' takes what is there now";
}

std::string Catalogue::look_for_changes(const PipelineVersion& pipeline, const Progress& progress) {
  return wait<std::string>(
             progress, [&](const ListingAsker& asker) { return look_for_changes(pipeline, asker); })
      .value_or(std::string());
}

Asked<std::string> Catalogue::look_for_changes(const PipelineVersion& pipeline,
                                               const ListingAsker& asker) {
  return ask<std::string>(
      pipeline.reader.uid, ListingKey(options_.access, "changes").add(pipeline).text(),
      [this, pipeline](const Progress& progress) -> Result<std::string> {
        std::string warning = change_of(pipeline, progress);
        // A job that was brought back has a version of its own: status tells of the current one.
        const PipelinePtr current = find(pipeline.id());
        const bool same =
            current != nullptr && current->request.dataset == pipeline.request.dataset;
        ListedSources& listed = same ? *current->listed : *pipeline.listed;
        if (listed.set_changed(pipeline.plan->spec.source, warning) && !warning.empty())
          spdlog::warn("{}", warning);
        return warning;
      },
      asker);
}

std::set<std::string> Catalogue::listings_in_use() const {
  std::set<std::string> used;
  if (kept_ != nullptr) used = kept_->in_use();
  for (const PipelinePtr& pipeline : all()) {
    for (std::string& dataset : pipeline->listed->datasets()) used.insert(std::move(dataset));
  }
  return used;
}

Status Catalogue::collect_listings(const std::set<std::string>& used) {
  return kept_ == nullptr ? Status() : kept_->collect(used, kCollectAfter);
}

}  // namespace spdld::pipeline
