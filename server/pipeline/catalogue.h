// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/cache/sample_cache.h"
#include "pipeline/pipeline_builder.h"

namespace spdld::pipeline {

// The answer to a call that does not wait; none: it is not there, and the asker will be told.
template <typename T>
using Asked = Result<std::optional<T>>;

struct CatalogueOptions {
  std::string state_dir;  // where listings are kept; empty: nowhere
  TrustedUsers trusted = TrustedUsers();
  int listings_per_user = 4;             // at once, of those that come on
  std::size_t pipelines_per_user = 256;  // applied; not of trusted users
  BuilderOptions build = {};
};

// The pipelines that there are, and the calls that make and open them. Each call that asks users'
// file systems (build, variant, rebuild, look_for_changes, a text that extends another file) runs
// on a thread of its own (`Listings`), once for all callers that ask for the same meanwhile. With a
// `ListingAsker`, it answers at once, with the outcome or with none, and the asker is told when to
// ask the same again; with a `Progress`, it blocks until the outcome is there or the progress gives
// up. All else is quick. Thread-safe; owned by the daemon, like the pool that its sources read
// with. The destructor waits for the listings.
class Catalogue {
 public:
  // Called several times a second while a call blocks; false gives up: kCancelled.
  using Progress = ListingProgress;

  // `io` and `caches` outlive it.
  Catalogue(CatalogueOptions options, Registry registry, source::IoPool& io,
            engine::SampleCaches& caches);
  ~Catalogue();

  PipelineTable& table() { return table_; }
  // The datasets that are listed now. The daemon ticks and stops them. Storage that does not answer
  // keeps a listing's thread, and then the process is to end without the destructor.
  Listings& listings() { return listings_; }
  const BuilderOptions& options() const { return builder_.options(); }
  // See the builder's.
  void set_letting_go(std::function<void()> let_go) { builder_.set_letting_go(std::move(let_go)); }

  // Makes a pipeline of a text that could run, and that its submitter may read. Knows no names yet.
  // Lists its data as they are now: users that apply the same text meanwhile each list it, and
  // loaders that bring the same text share one listing.
  //
  // If the request names a dataset that was listed when it was applied, that is opened again.
  // `serial`: tells this call from others of the same request, which share its outcome.
  Result<PipelinePtr> build(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                            const Progress& progress);
  Asked<PipelinePtr> build(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                           const ListingAsker& asker, const std::string& serial = {});
  Result<PipelineText> text_of(uid_t owner, const job::ApplyRequest& request,
                               const Progress& progress);
  Asked<PipelineText> text_of(uid_t owner, const job::ApplyRequest& request,
                              const ListingAsker& asker);
  // Makes the same pipeline, open, with other variables, or another batch size, for a reader that
  // may read its data: kPermissionDenied for one that may not, even if nothing else differs. Lists
  // nothing unless the variables change the data that are read.
  Result<PipelinePtr> variant(const PipelinePtr& base, const Variation& variation,
                              const Progress& progress);
  Asked<PipelinePtr> variant(const PipelinePtr& base, const Variation& variation,
                             const ListingAsker& asker);
  // Makes it as it was kept: under its number, and with the batch size that it had.
  Result<PipelinePtr> rebuild(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                              const Recorded& as, const Progress& progress);
  Asked<PipelinePtr> rebuild(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                             const Recorded& as, const ListingAsker& asker);
  // Makes it as it was, and closed, from the daemon's own record of its listing (the request names
  // it): no file of the user is touched but those that the text extends. Where that record is lost,
  // it is opened. Both are given up where storage does not answer: kUnavailable.
  Result<PipelinePtr> recall(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                             const Recorded& as);
  // Looks whether its data are still as they were listed, and counts the items that are there if
  // they are not: that is a warning until they are, or the pipeline is applied again. Returns the
  // warning, empty if there is none.
  Asked<std::string> look_for_changes(const PipelineVersion& pipeline, const ListingAsker& asker);

  // This caller should know these of the pipelines that it sees, though nothing failed: a listing
  // that could not be kept, a class without items.
  std::vector<std::string> warnings(uid_t caller) const;
  // Those of data that none of the caller's pipelines reads are not named to it.
  std::vector<engine::SampleCache::Snapshot> cache_snapshots(uid_t caller) const;
  // For a run of it; null if it is to have none.
  Result<std::shared_ptr<engine::SampleCache>> open_cache(const PipelineVersion& pipeline) const;
  // Closes the pipelines that nobody has, nor has asked for since the last call, and that can be
  // opened again as they are. Returns how many.
  std::size_t close_unused();
  // The listings that are open, or that variables would open again.
  std::set<std::string> listings_in_use() const;
  // Removes those that are not, and that are none of `used` either.
  Status collect_listings(const std::set<std::string>& used);

 private:
  engine::SampleCaches& caches_;
  PipelineTable table_;
  const std::unique_ptr<source::KeptDatasets> kept_;  // null: nothing is kept
  PipelineBuilder builder_;
  std::atomic<std::uint64_t> serial_ = 0;  // relaxed: of builds
  Listings listings_;                      // its threads use all of the above
};

}  // namespace spdld::pipeline
