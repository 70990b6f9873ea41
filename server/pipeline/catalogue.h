// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/memory/buffer_memory.h"
#include "base/mutex.h"
#include "base/reaper.h"
#include "base/status.h"
#include "base/users/trusted_users.h"
#include "engine/cache/sample_caches.h"
#include "engine/plan/plan.h"
#include "job/pipeline_id.h"
#include "job/request.h"
#include "op/registry.h"
#include "pipeline/listings.h"
#include "source/file/access.h"
#include "source/file/io_pool.h"
#include "source/item/source.h"
#include "source/order/cursor.h"
#include "source/order/lengths.h"
#include "source/order/sampler.h"

namespace spdld::source {
class MediaProber;
class KeptDatasets;
}  // namespace spdld::source

namespace spdld::pipeline {

class ListedSources;

// A pipeline that can run: parsed, listed, compiled. Immutable; jobs pin the one that they run.
struct PipelineVersion {
  std::uint32_t version = 0;
  job::PipelineOwner owner = {};
  job::ApplyRequest request;
  std::shared_ptr<const engine::Plan> plan;
  std::shared_ptr<source::Source> source;
  std::string content_digest;
  // What its sample cache would do, if it asks for one.
  std::optional<engine::CacheEstimate> cache = std::nullopt;
  std::string work_digest;  // of the content but for what may be tuned while it runs
  std::shared_ptr<ListedSources> listed = nullptr;  // with its variants'
  Credentials reader = {};  // with whose rights `source` reads (AccessRules::normalized)
  // Of the source's items, where the shuffle goes by them; else null.
  std::shared_ptr<const source::Lengths> lengths = nullptr;
  std::string lengths_digest;
  std::size_t classes = 0;  // how many
  // What is known of the items is not in memory: `source` is a source::ClosedSource and `lengths`
  // null, and Catalogue::variant() opens them again.
  bool closed = false;

  const std::string& name() const { return plan->spec.name; }  // as its text has it
  std::string id() const { return pipeline_id(owner, name()); }
  source::Order order() const;
  // kResourceExhausted: what an order by length keeps has no room among its user's listings. Of a
  // closed one it tells no order.
  Result<source::Sampler> sampler(std::uint64_t seed) const;
  // What its users should know though nothing failed: a slip in the text, a class without items.
  std::vector<std::string> warnings() const;
  std::uint64_t replace_budget() const;  // of a run: items that others may take the place of
  // Of what its author wrote, whatever the dataset holds by now.
  std::string text_digest() const;
};
using PipelinePtr = std::shared_ptr<const PipelineVersion>;

// What a request says, before anything is listed.
struct PipelineText {
  std::string name;
  std::string digest;                       // PipelineVersion::text_digest()
  std::map<std::string, std::string> vars;  // as they are, given or not
};

// The answer to a call that does not wait; none: it is not there, and the asker will be told.
template <typename T>
using Asked = Result<std::optional<T>>;

// Whose files a variant has that reads from elsewhere than its base.
enum class VariantFiles {
  kAsListed,  // those that its variables had when this version was given them first
  kNow,       // those that are there now
};

struct CatalogueOptions {
  std::string state_dir;  // where listings are kept; empty: nowhere
  source::AccessRules access = {};
  std::vector<uid_t> admins;
  std::int64_t max_pixels = std::numeric_limits<std::int64_t>::max();  // of an image; limits'
  std::uint64_t row_memory_bytes = std::numeric_limits<std::uint64_t>::max();  // of a row; likewise
  int listings_per_user = 4;                        // at once, of those that come on
  std::size_t pipelines_per_user = 256;             // applied; not of trusted users
  std::shared_ptr<BufferMemory> buffers = nullptr;  // of files that are read; null: unbounded
  // Of what the items of datasets take.
  std::shared_ptr<ListingMemory> memory = ListingMemory::unbounded();
  // Tells what media files hold; outlives the catalogue. Null: clips of them are refused.
  const source::MediaProber* prober = nullptr;
  Reaper* reaper = nullptr;  // for sources that nobody has any more; it outlives them all
};

// The pipelines by id. Each call that asks users' file systems (build, variant, rebuild,
// look_for_changes, a text that extends another file) runs on a thread of its own (`Listings`),
// once for all callers that ask for the same meanwhile, and comes in two forms: with a `Progress`,
// it blocks until the outcome is there or the progress gives up; with a `ListingAsker`, it answers
// at once, with the outcome or with none, and the asker is told when to ask the same again. All
// else is quick. Thread-safe; owned by the daemon, like the pool that its sources read with.
class Catalogue {
 public:
  // Called several times a second while a call blocks; false gives up: kCancelled.
  using Progress = ListingProgress;

  // `io` and `caches` outlive it.
  Catalogue(CatalogueOptions options, Registry registry, source::IoPool& io,
            engine::SampleCaches& caches);
  ~Catalogue();

  // What has those let go of sources who have no use for them any more; called under no lock. To be
  // set before anything is built, for as long as anything is.
  void set_letting_go(std::function<void()> let_go) SPDLD_EXCLUDES(let_go_mutex_) {
    MutexLock lock(let_go_mutex_);
    let_go_ = std::move(let_go);
  }

  // Text to a pipeline that could run, and that its submitter may read. Knows no names yet. Lists
  // its data as they are now: users that apply the same text meanwhile each list it, and loaders
  // that bring the same text share one listing.
  //
  // If the request names what was listed when it was applied, that is opened again.
  Result<PipelinePtr> build(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                            const Progress& progress) SPDLD_EXCLUDES(mutex_);
  Asked<PipelinePtr> build(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                           const ListingAsker& asker) SPDLD_EXCLUDES(mutex_);
  // The record that an earlier daemon left of a pipeline.
  struct Recorded {
    std::uint32_t version = 0;
    std::optional<std::uint64_t> batch_size = std::nullopt;  // none: as its text has it
    std::optional<Credentials> reader = std::nullopt;        // none: as in ApplyRequest
  };
  // As it was, and closed, from the daemon's own record of what was listed (the request names it):
  // no file of the user is touched but those that the text extends. Where that record is lost, it
  // is opened. Both are given up where storage does not answer: kUnavailable.
  Result<PipelinePtr> recall(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                             const Recorded& as) SPDLD_EXCLUDES(mutex_);
  Result<PipelineText> text_of(uid_t owner, const job::ApplyRequest& request,
                               const Progress& progress);
  Asked<PipelineText> text_of(uid_t owner, const job::ApplyRequest& request,
                              const ListingAsker& asker);
  // The owner of what this user applies or brings: for an admin, all users share it.
  job::PipelineOwner owner_for(uid_t uid) const { return {.uid = uid, .shared = is_admin(uid)}; }
  // The same pipeline, open, with other variables, or another batch size, for who may read its
  // data: kPermissionDenied for a reader who may not, even if nothing else differs. Lists nothing
  // unless the variables change what is read.
  Result<PipelinePtr> variant(const PipelinePtr& base,
                              const std::map<std::string, std::string>& vars,
                              std::optional<std::uint64_t> batch_size, const Credentials& reader,
                              const Progress& progress,
                              VariantFiles files = VariantFiles::kAsListed) SPDLD_EXCLUDES(mutex_);
  Asked<PipelinePtr> variant(const PipelinePtr& base,
                             const std::map<std::string, std::string>& vars,
                             std::optional<std::uint64_t> batch_size, const Credentials& reader,
                             const ListingAsker& asker,
                             VariantFiles files = VariantFiles::kAsListed) SPDLD_EXCLUDES(mutex_);

  // Closes the pipelines that nobody has, nor has asked for since the last call, and that can be
  // opened again as they are. Returns how many.
  std::size_t close_unused() SPDLD_EXCLUDES(mutex_);

  // As it was kept: under its number, and with the batch size that it had. `reader`: with whose
  // rights its data are read; none: as in ApplyRequest.
  Result<PipelinePtr> rebuild(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                              std::uint32_t version, std::optional<std::uint64_t> batch_size,
                              const std::optional<Credentials>& reader, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  Asked<PipelinePtr> rebuild(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                             std::uint32_t version, std::optional<std::uint64_t> batch_size,
                             const std::optional<Credentials>& reader, const ListingAsker& asker)
      SPDLD_EXCLUDES(mutex_);
  // It, numbered as put() would: the number that it has already if its content is what there is.
  // Fails if the caller may not change it, or may not have another one.
  Result<PipelinePtr> numbered(uid_t caller, const PipelinePtr& pipeline,
                               std::uint32_t at_least = 1) const SPDLD_EXCLUDES(mutex_);

  // Puts it under its id, as the next version; the same content stays the version it was.
  // `at_least`: versions before were used by an earlier daemon.
  Result<PipelinePtr> put(uid_t caller, PipelinePtr pipeline, std::uint32_t at_least = 1)
      SPDLD_EXCLUDES(mutex_);
  // Puts back what was there before the version that is there now, under its own number.
  void take_back(const PipelinePtr& before) SPDLD_EXCLUDES(mutex_);
  // What a loader brings that nobody has applied yet. One with the same text that another loader
  // has put meanwhile stays instead.
  Result<PipelinePtr> put_first(uid_t caller, const PipelinePtr& pipeline) SPDLD_EXCLUDES(mutex_);
  // One that was applied and cannot be opened: until it is applied again, get() says why, and
  // nothing else takes its place.
  void put_lost(const std::string& id, uid_t owner, std::uint32_t version, Status why)
      SPDLD_EXCLUDES(mutex_);
  bool is_lost(const std::string& id) const SPDLD_EXCLUDES(mutex_);
  PipelinePtr find(const std::string& id) const SPDLD_EXCLUDES(mutex_);
  // Why it is lost, if it is, or that there is none of that id. `text`: what it was called.
  Result<PipelinePtr> get(const std::string& id, uid_t caller, const std::string& text) const
      SPDLD_EXCLUDES(mutex_);
  std::vector<PipelinePtr> all() const SPDLD_EXCLUDES(mutex_);
  // Whether remove() would do it.
  Status check_remove(uid_t caller, const std::string& id) const SPDLD_EXCLUDES(mutex_);
  Status remove(uid_t caller, const std::string& id) SPDLD_EXCLUDES(mutex_);

  // What `text` may mean to the caller (pipeline_ids()), and of that what exists or is lost.
  Result<std::vector<std::string>> ids(uid_t caller, const std::string& text) const;
  Result<std::vector<std::string>> known_ids(uid_t caller, const std::string& text) const
      SPDLD_EXCLUDES(mutex_);
  // The first of known_ids(). kNotFound, with the names that there are, if there is none.
  Result<std::string> resolve(uid_t caller, const std::string& text) const SPDLD_EXCLUDES(mutex_);
  // resolve() and get().
  Result<PipelinePtr> named(uid_t caller, const std::string& text) const SPDLD_EXCLUDES(mutex_);
  // The shortest name by which this caller can ask for the pipeline.
  std::string name_for(uid_t caller, const std::string& id) const SPDLD_EXCLUDES(mutex_);
  // The caller's own and the shared ones; to admins all.
  std::vector<PipelinePtr> visible_to(uid_t caller) const SPDLD_EXCLUDES(mutex_);

  // What this caller should know of the pipelines that it sees, though nothing failed: a listing
  // that could not be kept, a class without items.
  std::vector<std::string> warnings(uid_t caller) const SPDLD_EXCLUDES(mutex_);
  // Those of data that none of the caller's pipelines reads are not named to it.
  std::vector<engine::SampleCache::Snapshot> cache_snapshots(uid_t caller) const
      SPDLD_EXCLUDES(mutex_);
  // Looks whether its data are still as they were listed, and counts what is there if they are not:
  // that is a warning until they are, or the pipeline is applied again. Returns the warning, empty
  // if there is none, or nobody waits for it any more.
  std::string look_for_changes(const PipelineVersion& pipeline, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  Asked<std::string> look_for_changes(const PipelineVersion& pipeline, const ListingAsker& asker)
      SPDLD_EXCLUDES(mutex_);
  // The listings that are open, or that variables would open again.
  std::set<std::string> listings_in_use() const SPDLD_EXCLUDES(mutex_);
  // Removes those that are not, and that are none of `used` either.
  Status collect_listings(const std::set<std::string>& used) SPDLD_EXCLUDES(mutex_);
  bool is_admin(uid_t uid) const { return trusted_.is_admin(uid); }
  Credentials normalized(Credentials reader) const {
    return options_.access.normalized(std::move(reader));
  }
  // How many each user has applied; those who have none are left out. What only a loader brought
  // does not count.
  std::map<uid_t, std::size_t> applied_by_users() const SPDLD_EXCLUDES(mutex_);
  std::size_t pipelines_per_user() const { return options_.pipelines_per_user; }
  // Who may have as many pipelines and jobs as it likes, and who may change what others own.
  const TrustedUsers& trusted() const { return trusted_; }
  // Datasets that are listed now, by user.
  const Listings& listings() const { return listings_; }
  // About once a second.
  void tick() { listings_.tick(); }
  // Gives up all listings, also those to come: every asker is told kUnavailable. Blocks for none.
  void stop() { listings_.stop(); }
  // Whether none is left, for which it waits so long. One whose storage does not answer keeps its
  // thread, and the destructor would wait for it: the process is to end without that.
  bool idle_within(std::chrono::nanoseconds grace) { return listings_.idle_within(grace); }
  const BufferMemory* buffers() const { return options_.buffers.get(); }  // null: unbounded
  const ListingMemory& listing_memory() const { return *options_.memory; }
  // For a run of it; null if it is to have none.
  Result<std::shared_ptr<engine::SampleCache>> open_cache(const PipelineVersion& pipeline) const;
  const Registry& registry() const { return registry_; }

 private:
  using Work = std::function<Result<PipelinePtr>(const Progress&)>;
  struct Variation {
    std::map<std::string, std::string> vars;
    std::optional<std::uint64_t> batch_size;
    Credentials reader;
    VariantFiles files = VariantFiles::kAsListed;
  };

  // What `work` makes on a thread of its own, once for all who ask under this key.
  template <typename T>
  Asked<T> ask(uid_t uid, const std::string& key, std::function<Result<T>(const Progress&)> work,
               const ListingAsker& asker) SPDLD_EXCLUDES(mutex_);
  // Asks again whenever it is told to, until there is an outcome.
  template <typename T>
  Result<T> wait(const Progress& progress, const std::function<Asked<T>(const ListingAsker&)>& ask);

  // `make`; where a limit stands in its way, once more without what nobody uses of this user.
  Result<PipelinePtr> with_room(uid_t reader, const std::function<Result<PipelinePtr>()>& make)
      SPDLD_EXCLUDES(mutex_);
  // Those that nobody has and that `may_close` names. Returns how many.
  std::size_t close(const std::function<bool(const PipelineVersion&)>& may_close)
      SPDLD_EXCLUDES(mutex_);
  // It, with its items. kDataLoss: these are not there any more as they were applied.
  Asked<PipelinePtr> opened(const PipelinePtr& pipeline, const ListingAsker& asker)
      SPDLD_EXCLUDES(mutex_);
  // It, or what somebody else has opened of it; null: it is closed.
  PipelinePtr open_already(const PipelinePtr& pipeline) SPDLD_EXCLUDES(mutex_);
  // recall(), of what the record alone tells.
  Result<PipelinePtr> recall_closed(const job::PipelineOwner& owner,
                                    const job::ApplyRequest& request, const Recorded& as)
      SPDLD_EXCLUDES(mutex_);
  // On the thread that calls.
  Result<PipelinePtr> open_now(const PipelinePtr& pipeline, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  Result<PipelinePtr> open_again(const PipelinePtr& closed, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  Result<PipelinePtr> variant_of(const PipelinePtr& open, const Variation& variation,
                                 const Progress& progress) SPDLD_EXCLUDES(mutex_);
  Result<spdld::spec::PipelineSpec> parse(uid_t owner, const job::ApplyRequest& request);
  Result<PipelineText> parse_text(uid_t owner, const job::ApplyRequest& request);
  // Lists for `reader`. `dataset` and `reader`: as SourceOptions has them. `of`: where it goes,
  // with its warnings. `varied`: what this is a variant of, if it is one.
  Result<std::unique_ptr<source::Source>> open_source(
      const spdld::spec::PipelineSpec& spec, const job::PipelineOwner& owner,
      const std::string& dataset, ListedSources& of, const PipelineVersion* varied,
      const Credentials& reader, const Progress& progress, bool from_kept_alone = false)
      SPDLD_EXCLUDES(mutex_);
  std::string change_of(const PipelineVersion& pipeline, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  // `lengths`: of the source's items, by what the shuffle says; null: they are read, if it does.
  // `looks`: items may be read, where that tells something of all.
  Result<PipelinePtr> assemble(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                               spdld::spec::PipelineSpec spec,
                               std::shared_ptr<source::Source> source,
                               std::shared_ptr<ListedSources> listed, Credentials reader,
                               std::shared_ptr<const source::Lengths> lengths = nullptr,
                               bool looks = true);
  // `serial`: tells this one from others of the same request.
  Asked<PipelinePtr> build(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                           const std::string& serial, const ListingAsker& asker)
      SPDLD_EXCLUDES(mutex_);
  // On the thread that calls.
  Result<PipelinePtr> build_now(const job::PipelineOwner& owner, const job::ApplyRequest& request,
                                const Credentials& reader, const Progress& progress)
      SPDLD_EXCLUDES(mutex_);
  // Whether its rights need not be asked for again, as they cannot be withdrawn.
  bool is_trusted_reader(const PipelineVersion& pipeline, const Credentials& reader) const;
  // The same for another reader; asks anew whether that one may list it.
  Result<PipelinePtr> read_by(const PipelinePtr& base, const Credentials& reader) const;
  std::shared_ptr<source::Source> shared(std::unique_ptr<source::Source> source) const;
  Status check_limits(const engine::Plan& plan) const;
  Status absent(uid_t caller, const std::string& text) const SPDLD_EXCLUDES(mutex_);
  std::map<uid_t, std::size_t> count_applied() const SPDLD_REQUIRES(mutex_);
  Status check_room(uid_t caller, const PipelineVersion& pipeline) const SPDLD_REQUIRES(mutex_);
  Status may_change(uid_t caller, const std::string& id) const;
  Result<PipelinePtr> number(uid_t caller, const PipelinePtr& pipeline,
                             std::uint32_t at_least) const SPDLD_REQUIRES(mutex_);

  const CatalogueOptions options_;
  const Registry registry_;
  source::IoPool& io_;
  engine::SampleCaches& caches_;
  const TrustedUsers trusted_;
  const std::unique_ptr<source::KeptDatasets> kept_;              // null: nothing is kept
  Mutex let_go_mutex_;                                            // taken before those of streams
  std::function<void()> let_go_ SPDLD_GUARDED_BY(let_go_mutex_);  // null: nobody is asked
  mutable Mutex mutex_;
  std::map<std::string, PipelinePtr> pipelines_ SPDLD_GUARDED_BY(mutex_);  // by id
  std::set<std::string> used_ SPDLD_GUARDED_BY(mutex_);  // of these, since close_unused()
  struct Lost {
    uid_t owner = 0;
    std::uint32_t version = 0;
    Status why;
  };
  std::map<std::string, Lost> lost_ SPDLD_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> serial_ = 0;  // relaxed: of builds
  Listings listings_;                      // its threads use all of the above
};

template <typename T>
Asked<T> Catalogue::ask(uid_t uid, const std::string& key,
                        std::function<Result<T>(const Progress&)> work, const ListingAsker& asker) {
  const auto erased = [work = std::move(work)](const Progress& progress) -> ListingOutcome {
    SPDLD_ASSIGN(T made, work(progress));
    return std::make_shared<const T>(std::move(made));
  };
  const std::optional<ListingOutcome> outcome = listings_.ask(uid, key, erased, asker);
  if (!outcome) return std::optional<T>();
  if (!*outcome) return tl::unexpected<Status>(outcome->error());
  return std::optional<T>(*std::static_pointer_cast<const T>(**outcome));
}

template <typename T>
Result<T> Catalogue::wait(const Progress& progress,
                          const std::function<Asked<T>(const ListingAsker&)>& ask) {
  ListingWaiter waiter(listings_);
  for (;;) {
    SPDLD_ASSIGN(std::optional<T> outcome, ask(waiter.asker()));
    if (outcome) return *std::move(outcome);
    if (!waiter.wait(progress))
      return error(Code::kCancelled, "nobody waits for the listing any more");
  }
}

}  // namespace spdld::pipeline
