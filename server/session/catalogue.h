// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/plan.h"
#include "engine/sample_caches.h"
#include "op/registry.h"
#include "session/views.h"
#include "source/cursor.h"
#include "source/io_pool.h"
#include "source/source.h"

namespace spdld::session {

// A pipeline that can run: parsed, listed, compiled. Immutable; jobs pin the one that they run.
struct PipelineVersion {
  std::uint32_t version = 0;
  uid_t owner = 0;
  ApplyRequest request;
  std::shared_ptr<const engine::Plan> plan;
  std::shared_ptr<source::Source> source;
  std::string content_digest;
  // What its sample cache would do, if it asks for one.
  std::optional<engine::CacheEstimate> cache = std::nullopt;
  std::string work_digest;  // of the content but for what may be tuned while it runs

  const std::string& name() const { return plan->spec.name; }
  source::Order order(std::uint64_t seed) const;
  // Of what its author wrote, whatever the dataset holds by now.
  std::string text_digest() const;
};
using PipelinePtr = std::shared_ptr<const PipelineVersion>;

struct CatalogueOptions {
  std::string state_dir;
  std::vector<std::string> roots;
  std::vector<uid_t> admins;
};

// The pipelines by name. Building one may take long (the listing); all else is quick. Thread-safe;
// owned by the daemon, like the pool that its sources read with.
class Catalogue {
 public:
  // Called while a dataset is listed; false gives up.
  using Progress = std::function<bool(std::uint64_t items, const std::string& what)>;

  // `io` and `caches` outlive it.
  Catalogue(CatalogueOptions options, Registry registry, source::IoPool& io,
            engine::SampleCaches& caches);

  // Text to a pipeline that could run. Knows no names yet.
  Result<PipelinePtr> build(uid_t owner, const ApplyRequest& request, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  // The same pipeline with other variables, or another batch size.
  Result<PipelinePtr> variant(const PipelinePtr& base,
                              const std::map<std::string, std::string>& vars,
                              std::optional<std::uint64_t> batch_size, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);

  // As it was kept: under its number, and with the batch size that it had.
  Result<PipelinePtr> rebuild(uid_t owner, const ApplyRequest& request, std::uint32_t version,
                              std::optional<std::uint64_t> batch_size, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  // It, numbered as put() would: the number that it has already if its content is what there is.
  // Fails if the caller may not change it.
  Result<PipelinePtr> numbered(uid_t caller, const PipelinePtr& pipeline,
                               std::uint32_t at_least = 1) const SPDLD_EXCLUDES(mutex_);

  // Puts it under its name, as the next version; the same content stays the version it was.
  // `at_least`: versions before were used by an earlier daemon.
  Result<PipelinePtr> put(uid_t caller, PipelinePtr pipeline, std::uint32_t at_least = 1)
      SPDLD_EXCLUDES(mutex_);
  PipelinePtr find(const std::string& name) const SPDLD_EXCLUDES(mutex_);
  Result<PipelinePtr> get(const std::string& name) const SPDLD_EXCLUDES(mutex_);
  std::vector<PipelinePtr> all() const SPDLD_EXCLUDES(mutex_);
  Status remove(uid_t caller, const std::string& name) SPDLD_EXCLUDES(mutex_);

  // What operators should know though nothing failed, such as a listing that could not be kept.
  std::vector<std::string> warnings() const SPDLD_EXCLUDES(mutex_);
  bool is_admin(uid_t uid) const;
  // For a run of it; null if it is to have none.
  Result<std::shared_ptr<engine::SampleCache>> open_cache(const PipelineVersion& pipeline) const;
  const Registry& registry() const { return registry_; }

 private:
  Result<spdld::spec::PipelineSpec> parse(const ApplyRequest& request);
  Result<std::shared_ptr<source::Source>> open_source(const spdld::spec::PipelineSpec& spec,
                                                      const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  Result<PipelinePtr> assemble(uid_t owner, const ApplyRequest& request,
                               spdld::spec::PipelineSpec spec,
                               std::shared_ptr<source::Source> source);
  Status absent(const std::string& name) const SPDLD_EXCLUDES(mutex_);
  Status may_change(uid_t caller, const PipelineVersion& pipeline) const;
  Result<PipelinePtr> number(uid_t caller, const PipelinePtr& pipeline,
                             std::uint32_t at_least) const SPDLD_REQUIRES(mutex_);

  const CatalogueOptions options_;
  const Registry registry_;
  source::IoPool& io_;
  engine::SampleCaches& caches_;
  mutable Mutex mutex_;
  std::map<std::string, PipelinePtr> pipelines_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::string> warnings_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
