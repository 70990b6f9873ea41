// SPDX-License-Identifier: Apache-2.0
#include "pipeline/pipeline_builder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <vector>

#include "base/log.h"
#include "base/text/counted.h"
#include "job/state.h"
#include "pipeline/listed_sources.h"
#include "source/bytes/digest_text.h"
#include "source/closed_source.h"
#include "source/file/text_file.h"
#include "source/kept/kept_datasets.h"
#include "source/open_source.h"
#include "spec/parse.h"

namespace spdld::pipeline {
namespace {

// Returns a pipeline's canonical text without the values that may change while it runs: how many
// samples may be in a stage at once.
std::string untuned(const std::string& canonical_text) {
  auto text = nlohmann::json::parse(canonical_text, nullptr, false);
  if (text.is_discarded() || !text.contains("stages")) return canonical_text;
  for (auto& stage : text["stages"]) {
    // How many processes call a function is fixed when they come.
    if (!stage.is_object() || stage.contains("python")) continue;
    for (auto& params : stage) {
      if (params.is_object()) params.erase("concurrency");
    }
  }
  return text.dump();
}

// Whether the classes do not come from the data themselves, and `other` has just the same.
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

}  // namespace

bool Variation::is_none_of(const PipelineVersion& base) const {
  const auto batch = static_cast<std::uint64_t>(base.plan->spec.batch.size);
  return vars.empty() && batch_size.value_or(batch) == batch;
}

Result<PipelinePtr> PipelineBuilder::with_room(uid_t reader,
                                               const std::function<Result<PipelinePtr>()>& make) {
  Result<PipelinePtr> made = make();
  if (made || made.error().code() != Code::kResourceExhausted) return made;
  {
    MutexLock lock(let_go_mutex_);
    if (let_go_) let_go_();
  }
  const auto may_close = [&](const PipelineVersion& pipeline) {
    return pipeline.reader.uid == reader && is_kept(pipeline);
  };
  if (table_.close(may_close) == 0) return made;
  if (options_.reaper != nullptr) options_.reaper->wait();
  return make();
}

bool PipelineBuilder::is_kept(const PipelineVersion& pipeline) const {
  return kept_ != nullptr && kept_->has(pipeline.source->dataset());
}

Result<spec::PipelineSpec> PipelineBuilder::parse(uid_t owner,
                                                  const job::ApplyRequest& request) const {
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
  bool is_extended = false;
  options.read_file = [&](const std::string& path) {
    is_extended = true;
    return source::read_text(access, path, spec::kMaxFileBytes);
  };
  auto spec =
      spec::parse_pipeline(request.yaml, has_file ? request.file : "pipeline", registry_, options);
  if (spec) spec->is_extended = is_extended;
  return spec;
}

Result<std::unique_ptr<source::Source>> PipelineBuilder::open_source(
    const spec::PipelineSpec& spec, const job::PipelineOwner& owner,
    const job::ApplyRequest& request, const std::string& dataset, ListedSources& of,
    const PipelineVersion* varied, const Credentials& reader, const ListingProgress& progress,
    bool from_kept_alone) {
  source::SourceOptions options(io_);
  options.kept = kept_;
  options.prober = options_.prober;
  options.dataset = dataset;
  options.from_kept_alone = from_kept_alone;
  options.access = options_.access;
  options.reader = reader;
  options.retry = spec.on_error.io;
  options.fail_on_bad_rows = spec.on_error.decode == spec::ErrorPolicy::OnDecode::kFail;
  options.buffers = options_.buffers;
  // An order over all items comes back to no window before it is gone.
  if (spec.shuffle.kind != Shuffle::Kind::kGlobal) options.windows = options_.windows;
  options.memory = options_.memory;
  const ClassesSpec* const classes = source::classes_of(spec.source);
  if (varied != nullptr && same_classes(spec.source, varied->plan->spec)) {
    // Classes that do not come from the files are those that were applied.
    options.classes = varied->source->classes();
  } else if (dataset.empty() && classes != nullptr &&
             classes->kind == ClassesSpec::Kind::kPipeline) {
    // A user's own name counts before the shared one, also if it cannot be opened.
    const std::string own = pipeline_id(owner, classes->pipeline);
    const std::string& id = table_.has(own) ? own : classes->pipeline;
    if (!table_.has(id))
      return error(Code::kNotFound, "pipeline '" + spec.name + "' takes its classes from '" +
                                        classes->pipeline +
                                        "', which is not there: apply that one first");
    SPDLD_ASSIGN(const PipelinePtr other, table_.get(id, owner.uid, classes->pipeline));
    // Its classes are names of directories, or stand in a file.
    SPDLD_ASSIGN(const PipelinePtr open, this->open(other, progress));
    SPDLD_ASSIGN(const PipelinePtr readable, read_by(open, reader));
    options.classes = readable->source->classes();
  }
  std::stop_source stop;
  options.stop = stop.get_token();
  options.progress = [&](std::uint64_t seen, const std::string& what) {
    const std::string doing = what.empty() ? "listing " + source::place_of(spec.source) : what;
    if (progress && !progress(seen, doing, {})) stop.request_stop();
  };
  options.open_call = [&](const CallSpec& call) {
    return open_caller(options_.code, {spec, owner.uid, request}, call, shown_uid(reader.uid));
  };
  options.wait_for_runners = [&](const std::string& what, const std::vector<std::string>& pools) {
    if (progress && !progress(0, what, pools)) stop.request_stop();
  };
  // Ranks start the processes that they wait for; who applies does only if it says so.
  const bool is_apply = varied == nullptr && dataset.empty();
  options.may_wait_for_runners = !is_apply || request.starts_runners || request.from_loader;
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

std::shared_ptr<source::Source> PipelineBuilder::shared(
    std::unique_ptr<source::Source> source) const {
  if (options_.reaper == nullptr) return source;
  return options_.reaper->share(std::move(source));
}

Status PipelineBuilder::check_limits(const engine::Plan& plan) const {
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

Result<std::shared_ptr<PipelineVersion>> PipelineBuilder::assemble(
    const job::PipelineOwner& owner, const job::ApplyRequest& request, spec::PipelineSpec spec,
    std::shared_ptr<source::Source> source, std::shared_ptr<ListedSources> listed,
    Credentials reader, std::shared_ptr<const source::Lengths> lengths, bool looks) const {
  const std::uint32_t rows_each = spec.shuffle.repeat.rows;
  if (source->size() > job::kMaxCount / rows_each)
    return error(Code::kInvalidArgument,
                 (rows_each > 1 ? spec.repeat_where.text() + ": repeat: " : "") +
                     counted(source->size(), "item") + " of " + counted(rows_each, "row") +
                     " each are more than an epoch may have, " + std::to_string(job::kMaxCount));
  auto pipeline = std::make_shared<PipelineVersion>();
  pipeline->owner = owner;
  pipeline->request = request;
  pipeline->reader = options_.access.normalized(std::move(reader));
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
  SPDLD_ASSIGN(pipeline->plan, engine::compile(std::move(spec), registry_, source->fields(), sizes,
                                               source->classes()));
  for (const auto& [field, size] : image_sizes)
    made_of +=
        "\nimages " + field + " " + std::to_string(size.width) + "x" + std::to_string(size.height);
  const std::string& text = pipeline->plan->spec.canonical_text;
  pipeline->work_digest = source::digest_text(untuned(text) + made_of);
  pipeline->content_digest = source::digest_text(text + made_of);
  SPDLD_TRY(check_limits(*pipeline->plan));
  pipeline->classes = source->classes().size();
  pipeline->source = std::move(source);
  if (pipeline->plan->spec.cache) {
    SPDLD_TRY(caches_.check(*pipeline->plan));
    if (looks) pipeline->cache = caches_.estimate(*pipeline->plan, *pipeline->source);
  }
  return pipeline;
}

Result<PipelineText> PipelineBuilder::text_of(uid_t owner, const job::ApplyRequest& request) const {
  SPDLD_ASSIGN(const spec::PipelineSpec spec, parse(owner, request));
  return PipelineText{
      .name = spec.name, .digest = source::digest_text(spec.canonical_text), .vars = spec.vars};
}

Result<PipelinePtr> PipelineBuilder::build(const job::PipelineOwner& owner,
                                           const job::ApplyRequest& request,
                                           const Credentials& reader,
                                           const ListingProgress& progress) {
  return with_room(reader.uid, [&]() -> Result<PipelinePtr> {
    SPDLD_ASSIGN(spec::PipelineSpec spec, parse(owner.uid, request));
    auto listed = std::make_shared<ListedSources>();
    SPDLD_ASSIGN(auto source, open_source(spec, owner, request, request.dataset, *listed, nullptr,
                                          reader, progress));
    return assemble(owner, request, std::move(spec), shared(std::move(source)), std::move(listed),
                    reader);
  });
}

Result<PipelinePtr> PipelineBuilder::recall(const job::PipelineOwner& owner,
                                            const job::ApplyRequest& request, const Recorded& as) {
  if (kept_ == nullptr || request.dataset.empty()) return error(Code::kNotFound, "nothing is kept");
  const Credentials reader = reader_of(owner.uid, as.reader ? as.reader : request.reader);
  return with_room(reader.uid, [&]() -> Result<PipelinePtr> {
    SPDLD_ASSIGN(spec::PipelineSpec spec, parse(owner.uid, request));
    if (as.batch_size) spec.batch.size = static_cast<std::int64_t>(*as.batch_size);
    auto listed = std::make_shared<ListedSources>();
    SPDLD_ASSIGN(auto source, open_source(spec, owner, request, request.dataset, *listed, nullptr,
                                          reader, nullptr, true));
    SPDLD_ASSIGN(const auto made, assemble(owner, request, std::move(spec), std::move(source),
                                           std::move(listed), reader, nullptr, false));
    auto closed = made->closed_copy();
    closed->version = as.version;
    return PipelinePtr(std::move(closed));
  });
}

Result<PipelinePtr> PipelineBuilder::variant(const PipelinePtr& open, const Variation& variation,
                                             const ListingProgress& progress) {
  return with_room(variation.reader.uid, [&] { return variant_of(open, variation, progress); });
}

Result<PipelinePtr> PipelineBuilder::variant_of(const PipelinePtr& base, const Variation& variation,
                                                const ListingProgress& progress) {
  const auto& [vars, batch_size, reader, which] = variation;
  if (variation.is_none_of(*base)) return read_by(base, reader);
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
    SPDLD_TRY(spec::check_batch_size(spec));
  }
  std::shared_ptr<source::Source> source;
  std::shared_ptr<const source::Lengths> lengths;
  if (spec.source != base->plan->spec.source) {
    const std::string dataset =
        which == VariantFiles::kNow ? std::string() : base->listed->dataset(spec.source);
    SPDLD_ASSIGN(auto opened, open_source(spec, base->owner, base->request, dataset, *base->listed,
                                          base.get(), reader, progress));
    source = shared(std::move(opened));
    request.image_sizes.clear();
  } else {
    SPDLD_ASSIGN(const PipelinePtr readable, read_by(base, reader));
    source = readable->source;
    if (same_lengths(spec, *base)) lengths = base->lengths;
  }
  SPDLD_ASSIGN(auto made, assemble(base->owner, request, std::move(spec), std::move(source),
                                   base->listed, reader, std::move(lengths)));
  made->version = base->version;
  return PipelinePtr(std::move(made));
}

bool PipelineBuilder::is_trusted_reader(const PipelineVersion& pipeline,
                                        const Credentials& reader) const {
  const Credentials as = options_.access.normalized(reader);
  return as == pipeline.reader && options_.access.trusts(as);
}

Result<PipelinePtr> PipelineBuilder::read_by(const PipelinePtr& base,
                                             const Credentials& reader) const {
  if (is_trusted_reader(*base, reader)) return base;
  const Credentials as = options_.access.normalized(reader);
  // Rights may have been withdrawn since they were asked for.
  auto source = base->source->read_by(as);
  if (!source)
    return tl::unexpected<Status>(source.error().with_context("pipeline '" + base->name() + "'"));
  if (as == base->reader) return base;
  auto readable = std::make_shared<PipelineVersion>(*base);
  readable->reader = as;
  if (*source != nullptr) readable->source = shared(*std::move(source));
  return PipelinePtr(std::move(readable));
}

Result<PipelinePtr> PipelineBuilder::open(const PipelinePtr& pipeline,
                                          const ListingProgress& progress) {
  if (PipelinePtr open = table_.find_open(pipeline)) return open;
  SPDLD_ASSIGN(PipelinePtr open,
               with_room(pipeline->reader.uid, [&] { return open_again(pipeline, progress); }));
  table_.put_open(pipeline, open);
  return open;
}

Result<PipelinePtr> PipelineBuilder::open_again(const PipelinePtr& closed,
                                                const ListingProgress& progress) {
  const spec::PipelineSpec& spec = closed->plan->spec;
  auto open = std::make_shared<PipelineVersion>(*closed);
  SPDLD_ASSIGN(auto source,
               open_source(spec, closed->owner, closed->request, closed->request.dataset,
                           *closed->listed, nullptr, closed->reader, progress));
  open->source = shared(std::move(source));
  const auto& was = static_cast<const source::ClosedSource&>(*closed->source);
  bool is_same = was.has_same_items(*open->source);
  if (is_same && spec.shuffle.bucket) {
    SPDLD_ASSIGN(open->lengths, source::Lengths::read(*open->source, spec.shuffle.bucket->by,
                                                      options_.memory->share(closed->reader.uid)));
    is_same = open->lengths->digest() == closed->lengths_digest;
  }
  if (!is_same)
    return error(Code::kDataLoss, "pipeline '" + closed->name() +
                                      "' cannot be opened as it was applied: its items, their "
                                      "values or its classes are others by now; apply it again");
  if (spec.cache && !open->cache) open->cache = caches_.estimate(*open->plan, *open->source);
  open->closed = false;
  return PipelinePtr(std::move(open));
}

std::string PipelineBuilder::change_of(const PipelineVersion& pipeline,
                                       const ListingProgress& progress) {
  if (!pipeline.source->has_changed()) return {};
  const std::string& root = source::place_of(pipeline.plan->spec.source);
  const std::uint64_t applied = pipeline.source->size();
  ListedSources unkept;
  const auto now = open_source(pipeline.plan->spec, pipeline.owner, pipeline.request, "", unkept,
                               nullptr, pipeline.reader, progress);
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

}  // namespace spdld::pipeline
