// SPDX-License-Identifier: Apache-2.0
#include "session/catalogue.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <utility>
#include <variant>

#include "base/check.h"
#include "source/files_source.h"
#include "spec/parse.h"

namespace spdld::session {
namespace {

constexpr std::size_t kMaxWarnings = 50;

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

}  // namespace

source::Order PipelineVersion::order(std::uint64_t seed) const {
  return {.listing_digest = source->listing_digest(),
          .items = source->size(),
          .shuffle = plan->spec.shuffle,
          .seed = seed};
}

std::string PipelineVersion::text_digest() const { return digest_of(plan->spec.canonical_text); }

Catalogue::Catalogue(CatalogueOptions options, Registry registry, source::IoPool& io,
                     engine::SampleCaches& caches)
    : options_(std::move(options)), registry_(std::move(registry)), io_(io), caches_(caches) {}

bool Catalogue::is_admin(uid_t uid) const {
  return uid == 0 || std::binary_search(options_.admins.begin(), options_.admins.end(), uid);
}

Result<spec::PipelineSpec> Catalogue::parse(const ApplyRequest& request) {
  spec::ParseOptions options;
  options.vars = request.vars;
  options.env = [&request](const std::string& name) -> std::optional<std::string> {
    const auto found = request.env.find(name);
    if (found == request.env.end()) return std::nullopt;
    return found->second;
  };
  const bool has_file = request.file.starts_with('/');
  if (has_file) options.directory = std::filesystem::path(request.file).parent_path().string();
  options.read_file = [this](const std::string& path) -> Result<std::string> {
    std::error_code failed;
    const std::string real = std::filesystem::canonical(path, failed).string();
    const auto inside = [&](const std::string& root) {
      return root == "/" || real == root || real.starts_with(root + "/");
    };
    if (!failed && std::none_of(options_.roots.begin(), options_.roots.end(), inside))
      return error(Code::kPermissionDenied,
                   path + " lies in none of access.roots; move it there or add its directory");
    return spec::read_text_file(path);
  };
  return spec::parse_pipeline(request.yaml, has_file ? request.file : "pipeline", registry_,
                              options);
}

Result<std::shared_ptr<source::Source>> Catalogue::open_source(const spec::PipelineSpec& spec,
                                                               const Progress& progress) {
  const FilesSpec& files = std::get<FilesSpec>(spec.source);
  source::FilesOptions options(io_);
  options.state_dir = options_.state_dir;
  options.roots = options_.roots;
  options.retry = spec.on_error.io;
  if (files.classes.kind == ClassesSpec::Kind::kPipeline) {
    const PipelinePtr other = find(files.classes.pipeline);
    if (other == nullptr)
      return error(Code::kNotFound, "pipeline '" + spec.name + "' takes its classes from '" +
                                        files.classes.pipeline +
                                        "', which is not there: apply that one first");
    options.classes = other->source->classes();
  }
  std::stop_source stop;
  options.stop = stop.get_token();
  options.progress = [&](std::uint64_t seen) {
    if (progress && !progress(seen, "listing " + files.root)) stop.request_stop();
  };
  std::vector<std::string> warnings;
  options.warnings = &warnings;
  auto opened = source::open_files(files, std::move(options));
  MutexLock lock(mutex_);
  for (const std::string& text : warnings) {
    std::string warning = "pipeline '" + spec.name + "': " + text;
    if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end())
      warnings_.push_back(std::move(warning));
  }
  if (warnings_.size() > kMaxWarnings)
    warnings_.erase(warnings_.begin(), warnings_.end() - kMaxWarnings);
  if (!opened)
    return tl::unexpected<Status>(opened.error().with_context("pipeline '" + spec.name + "'"));
  return std::shared_ptr<source::Source>(std::move(opened).value());
}

Result<PipelinePtr> Catalogue::assemble(uid_t owner, const ApplyRequest& request,
                                        spec::PipelineSpec spec,
                                        std::shared_ptr<source::Source> source) {
  auto pipeline = std::make_shared<PipelineVersion>();
  pipeline->owner = owner;
  pipeline->request = request;
  const std::string made_of =
      "\nbatch " + std::to_string(spec.batch.size) + "\nlisting " + source->listing_digest();
  pipeline->work_digest = digest_of(untuned(spec.canonical_text) + made_of);
  pipeline->content_digest = digest_of(spec.canonical_text + made_of);
  SPDLD_ASSIGN(pipeline->plan, engine::compile(std::move(spec), registry_, source->fields()));
  pipeline->source = std::move(source);
  if (pipeline->plan->spec.cache) {
    SPDLD_TRY(caches_.check(*pipeline->plan));
    pipeline->cache = caches_.estimate(*pipeline->plan, *pipeline->source);
  }
  return PipelinePtr(std::move(pipeline));
}

Result<PipelinePtr> Catalogue::build(uid_t owner, const ApplyRequest& request,
                                     const Progress& progress) {
  SPDLD_ASSIGN(spec::PipelineSpec spec, parse(request));
  SPDLD_ASSIGN(std::shared_ptr<source::Source> source, open_source(spec, progress));
  return assemble(owner, request, std::move(spec), std::move(source));
}

Result<PipelinePtr> Catalogue::variant(const PipelinePtr& base,
                                       const std::map<std::string, std::string>& vars,
                                       std::optional<std::uint64_t> batch_size,
                                       const Progress& progress) {
  const auto batch = static_cast<std::uint64_t>(base->plan->spec.batch.size);
  if (vars.empty() && batch_size.value_or(batch) == batch) return base;
  ApplyRequest request = base->request;
  for (const auto& [name, value] : vars) request.vars[name] = value;
  SPDLD_ASSIGN(spec::PipelineSpec spec, parse(request));
  if (batch_size) {
    constexpr std::uint64_t kMaxBatch = 65536;
    if (*batch_size == 0 || *batch_size > kMaxBatch)
      return error(Code::kInvalidArgument, "a batch size of " + std::to_string(*batch_size) +
                                               " is not between 1 and " +
                                               std::to_string(kMaxBatch));
    spec.batch.size = static_cast<std::int64_t>(*batch_size);
  }
  std::shared_ptr<source::Source> source = base->source;
  if (spec.source != base->plan->spec.source) {
    SPDLD_ASSIGN(source, open_source(spec, progress));
  }
  auto made = assemble(base->owner, request, std::move(spec), std::move(source));
  if (!made) return made;
  auto pipeline = std::make_shared<PipelineVersion>(**made);
  pipeline->version = base->version;
  return PipelinePtr(std::move(pipeline));
}

Status Catalogue::may_change(uid_t caller, const PipelineVersion& pipeline) const {
  if (caller == pipeline.owner || is_admin(caller)) return {};
  return Status(Code::kPermissionDenied,
                "pipeline '" + pipeline.name() + "' belongs to uid " +
                    std::to_string(pipeline.owner) + ", and uid " + std::to_string(caller) +
                    " is not in access.admins: use another name, or ask an admin");
}

Result<PipelinePtr> Catalogue::rebuild(uid_t owner, const ApplyRequest& request,
                                       std::uint32_t version,
                                       std::optional<std::uint64_t> batch_size,
                                       const Progress& progress) {
  SPDLD_ASSIGN(const PipelinePtr built, build(owner, request, progress));
  SPDLD_ASSIGN(const PipelinePtr sized, variant(built, {}, batch_size, progress));
  auto numbered = std::make_shared<PipelineVersion>(*sized);
  numbered->version = version;
  return PipelinePtr(std::move(numbered));
}

Result<PipelinePtr> Catalogue::number(uid_t caller, const PipelinePtr& pipeline,
                                      std::uint32_t at_least) const {
  const auto known = pipelines_.find(pipeline->name());
  auto numbered = std::make_shared<PipelineVersion>(*pipeline);
  numbered->version = at_least;
  if (known != pipelines_.end()) {
    SPDLD_TRY(may_change(caller, *known->second));
    // One that has other variables is another one, though they make the same of it.
    const PipelineVersion& now = *known->second;
    if (now.content_digest == pipeline->content_digest &&
        now.plan->spec.vars == pipeline->plan->spec.vars)
      return known->second;
    numbered->version = std::max(at_least, known->second->version + 1);
    numbered->owner = known->second->owner;
  }
  return PipelinePtr(std::move(numbered));
}

Result<PipelinePtr> Catalogue::numbered(uid_t caller, const PipelinePtr& pipeline,
                                        std::uint32_t at_least) const {
  MutexLock lock(mutex_);
  return number(caller, pipeline, at_least);
}

Result<PipelinePtr> Catalogue::put(uid_t caller, PipelinePtr pipeline, std::uint32_t at_least) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(PipelinePtr numbered, number(caller, pipeline, at_least));
  pipelines_[numbered->name()] = numbered;
  return numbered;
}

PipelinePtr Catalogue::find(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = pipelines_.find(name);
  return found == pipelines_.end() ? nullptr : found->second;
}

Result<PipelinePtr> Catalogue::get(const std::string& name) const {
  if (PipelinePtr found = find(name)) return found;
  return tl::unexpected<Status>(absent(name));
}

Status Catalogue::absent(const std::string& name) const {
  std::string known;
  for (const PipelinePtr& pipeline : all()) known += (known.empty() ? "" : ", ") + pipeline->name();
  return Status(Code::kNotFound, "there is no pipeline '" + name + "'; " +
                                     (known.empty() ? "none has been applied yet: 'spdlctl apply "
                                                      "-f FILE' does it"
                                                    : "there are: " + known));
}

std::vector<PipelinePtr> Catalogue::all() const {
  MutexLock lock(mutex_);
  std::vector<PipelinePtr> result;
  for (const auto& [name, pipeline] : pipelines_) result.push_back(pipeline);
  return result;
}

Status Catalogue::remove(uid_t caller, const std::string& name) {
  {
    MutexLock lock(mutex_);
    if (const auto known = pipelines_.find(name); known != pipelines_.end()) {
      SPDLD_TRY(may_change(caller, *known->second));
      pipelines_.erase(known);
      return {};
    }
  }
  return absent(name);
}

Result<std::shared_ptr<engine::SampleCache>> Catalogue::open_cache(
    const PipelineVersion& pipeline) const {
  if (!pipeline.cache) return std::shared_ptr<engine::SampleCache>();
  return caches_.open(*pipeline.plan, *pipeline.source, *pipeline.cache);
}

std::vector<std::string> Catalogue::warnings() const {
  std::vector<std::string> warnings = caches_.warnings();
  MutexLock lock(mutex_);
  warnings.insert(warnings.end(), warnings_.begin(), warnings_.end());
  return warnings;
}

}  // namespace spdld::session
