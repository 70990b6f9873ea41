// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/memory/buffer_memory.h"
#include "base/mutex.h"
#include "base/reaper.h"
#include "engine/cache/sample_caches.h"
#include "op/registry.h"
#include "pipeline/listings.h"
#include "pipeline/pipeline_table.h"
#include "pipeline/user_code.h"
#include "source/file/access.h"
#include "source/file/io_pool.h"

namespace spdld::source {
class MediaProber;
class KeptDatasets;
class ReadWindows;
}  // namespace spdld::source

namespace spdld::pipeline {

struct BuilderOptions {
  source::AccessRules access = {};
  std::int64_t max_pixels = std::numeric_limits<std::int64_t>::max();  // of an image; limits'
  std::uint64_t row_memory_bytes = std::numeric_limits<std::uint64_t>::max();  // of a row; likewise
  std::shared_ptr<BufferMemory> buffers = nullptr;  // of files that are read; null: unbounded
  // Of orders by neighbours; null: nothing that lies near an item is kept for the next one.
  std::shared_ptr<source::ReadWindows> windows = nullptr;
  std::shared_ptr<ListingMemory> memory = ListingMemory::unbounded();  // of datasets' items
  // Reads the facts of media files; outlives the builder. Null: clips of them are refused.
  const source::MediaProber* prober = nullptr;
  Reaper* reaper = nullptr;  // frees sources that nobody has any more; outlives them all
  UserCode code = {};        // of datasets of users' own
};

// The files of a variant that reads from elsewhere than its base.
enum class VariantFiles {
  kAsListed,  // those that its variables had when this version was given them first
  kNow,       // those that are there now
};

// How a variant differs from its base.
struct Variation {
  std::map<std::string, std::string> vars = {};
  std::optional<std::uint64_t> batch_size = std::nullopt;
  Credentials reader = {};
  VariantFiles files = VariantFiles::kAsListed;

  // Whether it leaves all of the base as it is, but for the reader.
  bool is_none_of(const PipelineVersion& base) const;
};

// The record that an earlier daemon left of a pipeline, beside the request.
struct Recorded {
  std::uint32_t version = 0;
  std::optional<std::uint64_t> batch_size = std::nullopt;  // none: as its text has it
  std::optional<Credentials> reader = std::nullopt;        // none: as in ApplyRequest
};

// A request's files are read with these rights: those that `reader` has, or else, of a record
// without them, those that the user database has for the owner. May wait for a directory service.
inline Credentials reader_of(uid_t owner, const std::optional<Credentials>& reader) {
  return reader ? *reader : Credentials::of_user(owner);
}

// Makes versions of pipelines, of a text or of another version: parses, lists or opens the data,
// compiles. A call blocks its thread for as long as users' file systems take; `progress`, which may
// be empty, gives up a listing. Owned by Catalogue; the table, the listings on disk, the pool and
// the caches outlive it. Thread-safe.
class PipelineBuilder {
 public:
  // `kept` null: listings are kept nowhere.
  PipelineBuilder(BuilderOptions options, Registry registry, source::IoPool& io,
                  engine::SampleCaches& caches, PipelineTable& table, source::KeptDatasets* kept)
      : options_(std::move(options)),
        registry_(std::move(registry)),
        io_(io),
        caches_(caches),
        table_(table),
        kept_(kept) {}

  // `let_go` has those let go of sources that have no use for them any more; it is called under
  // `let_go_mutex_` alone. To be set before anything is built, for as long as anything is.
  void set_letting_go(std::function<void()> let_go) SPDLD_EXCLUDES(let_go_mutex_) {
    MutexLock lock(let_go_mutex_);
    let_go_ = std::move(let_go);
  }
  const BuilderOptions& options() const { return options_; }

  // These do the work of Catalogue's calls of the same names.
  Result<PipelineText> text_of(uid_t owner, const job::ApplyRequest& request) const;
  Result<PipelinePtr> build(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                            const Credentials& reader, const ListingProgress& progress);
  Result<PipelinePtr> variant(const PipelinePtr& open, const Variation& variation,
                              const ListingProgress& progress);
  // Makes it closed, from the daemon's own record of its listing alone.
  Result<PipelinePtr> recall(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                             const Recorded& as);
  // Returns it with its items. kDataLoss: these are not there any more as they were applied.
  Result<PipelinePtr> open(const PipelinePtr& pipeline, const ListingProgress& progress);
  // Returns the warning that its data have changed; empty: they have not.
  std::string change_of(const PipelineVersion& pipeline, const ListingProgress& progress);
  // Whether its listing is kept, so that it may be closed and opened again.
  bool is_kept(const PipelineVersion& pipeline) const;
  // Whether its rights need not be asked for again, as they cannot be withdrawn.
  bool is_trusted_reader(const PipelineVersion& pipeline, const Credentials& reader) const;

 private:
  // Returns the outcome of `make`; where that lacks room, calls it again after the reader's
  // pipelines that nobody has were closed.
  Result<PipelinePtr> with_room(uid_t reader, const std::function<Result<PipelinePtr>()>& make)
      SPDLD_EXCLUDES(let_go_mutex_);
  Result<spdld::spec::PipelineSpec> parse(uid_t owner, const job::ApplyRequest& request) const;
  // Lists for `reader` what the request says, which counts for who brings it and what may be waited
  // for. SourceOptions tells of `dataset`, `reader` and `from_kept_alone`. Notes the
  // source in `of`, with its warnings. `varied`: the base of this variant, if it is one.
  Result<std::unique_ptr<source::Source>> open_source(
      const spdld::spec::PipelineSpec& spec, const job::PipelineOwner& owner,
      const job::ApplyRequest& request, const std::string& dataset, ListedSources& of,
      const PipelineVersion* varied, const Credentials& reader, const ListingProgress& progress,
      bool from_kept_alone = false);
  std::shared_ptr<source::Source> shared(std::unique_ptr<source::Source> source) const;
  // `lengths`: of the source's items, as the shuffle needs them; null: they are read, if it does.
  // `looks`: items may be read, where that tells something of all.
  Result<std::shared_ptr<PipelineVersion>> assemble(
      const job::PipelineOwner& owner, const job::ApplyRequest& request,
      spdld::spec::PipelineSpec spec, std::shared_ptr<source::Source> source,
      std::shared_ptr<ListedSources> listed, Credentials reader,
      std::shared_ptr<const source::Lengths> lengths = nullptr, bool looks = true) const;
  Status check_limits(const engine::Plan& plan) const;
  Result<PipelinePtr> variant_of(const PipelinePtr& open, const Variation& variation,
                                 const ListingProgress& progress);
  // Returns the same for another reader; asks anew whether that one may list it.
  Result<PipelinePtr> read_by(const PipelinePtr& base, const Credentials& reader) const;
  Result<PipelinePtr> open_again(const PipelinePtr& closed, const ListingProgress& progress);

  const BuilderOptions options_;
  const Registry registry_;
  source::IoPool& io_;
  engine::SampleCaches& caches_;
  PipelineTable& table_;
  source::KeptDatasets* const kept_;
  Mutex let_go_mutex_;                                            // taken before those of streams
  std::function<void()> let_go_ SPDLD_GUARDED_BY(let_go_mutex_);  // null: nobody is asked
};

}  // namespace spdld::pipeline
