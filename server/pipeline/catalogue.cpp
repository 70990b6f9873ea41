// SPDX-License-Identifier: Apache-2.0
#include "pipeline/catalogue.h"

#include <chrono>
#include <concepts>
#include <functional>
#include <utility>

#include "base/log.h"
#include "pipeline/listed_sources.h"
#include "source/bytes/digest_text.h"
#include "source/kept/kept_datasets.h"

namespace spdld::pipeline {
namespace {

constexpr std::size_t kMaxWarnings = 50;
// A dataset that was listed and is not on record yet, by a preview or an apply under way, is let be
// so long.
constexpr std::chrono::hours kCollectAfter{1};
// A daemon that starts waits for no storage that is silent for so long.
constexpr std::chrono::seconds kStorageAnswers{10};

// Gives up a listing that does not come on.
ListingProgress while_it_answers() {
  struct Seen {
    std::uint64_t items = 0;
    std::string what;
    std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
  };
  return [seen = std::make_shared<Seen>()](std::uint64_t items, const std::string& what,
                                           const std::vector<std::string>& pools) {
    const auto now = std::chrono::steady_clock::now();
    if (items != seen->items || what != seen->what) *seen = {items, what, now};
    // While the daemon begins, nobody is there who would start processes.
    return pools.empty() && now - seen->at < kStorageAnswers;
  };
}

// The key of a listing: all that its outcome depends on, but the files.
class ListingKey {
 public:
  template <typename... Parts>
  explicit ListingKey(const source::AccessRules& rules, const Parts&... parts) : rules_(rules) {
    add_all(parts...);
  }
  std::string text() const { return source::digest_text(text_); }

 private:
  template <typename... Parts>
  void add_all(const Parts&... parts) {
    (add(parts), ...);
  }
  void add(const std::string& text) { text_ += std::to_string(text.size()) + ":" + text + ","; }
  void add(std::integral auto number) { add(std::to_string(number)); }
  template <typename T>
  void add(const std::optional<T>& some) {
    add(some.has_value());
    if (some) add(*some);
  }
  template <typename T>
  void add(const std::map<std::string, T>& entries) {
    add(entries.size());
    for (const auto& [name, value] : entries) add_all(name, value);
  }
  void add(const Size& size) { add_all(size.width, size.height); }
  void add(const Credentials& reader) {
    const Credentials as = rules_.normalized(reader);
    add_all(as.uid, as.gid, as.groups.size());
    for (const gid_t group : as.groups) add(group);
  }
  void add(const job::PipelineOwner& owner) { add_all(owner.uid, owner.shared); }
  void add(const job::ApplyRequest& request) {
    add_all(request.yaml, request.file, request.vars, request.env, request.dataset,
            request.bucket_run, request.from_loader, request.reader, request.image_sizes);
  }
  void add(const PipelineVersion& pipeline) {
    add_all(pipeline.id(), pipeline.version, pipeline.content_digest, pipeline.request.dataset,
            pipeline.reader);
  }

  const source::AccessRules& rules_;
  std::string text_;
};

// Has `work` made on a thread of its own, once for all that ask under this key.
template <typename T>
Asked<T> ask(Listings& listings, uid_t uid, const std::string& key,
             std::function<Result<T>(const ListingProgress&)> work, const ListingAsker& asker) {
  const auto erased = [work = std::move(work)](const ListingProgress& progress) -> ListingOutcome {
    SPDLD_ASSIGN(T made, work(progress));
    return std::make_shared<const T>(std::move(made));
  };
  const std::optional<ListingOutcome> outcome = listings.ask(uid, key, erased, asker);
  if (!outcome) return std::optional<T>();
  if (!*outcome) return tl::unexpected<Status>(outcome->error());
  return std::optional<T>(*std::static_pointer_cast<const T>(**outcome));
}

// Asks again whenever it is told to, until there is an outcome.
template <typename T>
Result<T> wait(Listings& listings, const ListingProgress& progress,
               const std::function<Asked<T>(const ListingAsker&)>& ask) {
  ListingWaiter waiter(listings);
  for (;;) {
    SPDLD_ASSIGN(std::optional<T> outcome, ask(waiter.asker()));
    if (outcome) return *std::move(outcome);
    if (!waiter.wait(progress))
      return error(Code::kCancelled, "nobody waits for the listing any more");
  }
}

}  // namespace

Catalogue::Catalogue(CatalogueOptions options, Registry registry, source::IoPool& io,
                     engine::SampleCaches& caches)
    : caches_(caches),
      table_(std::move(options.trusted), options.pipelines_per_user),
      kept_(options.state_dir.empty()
                ? nullptr
                : std::make_unique<source::KeptDatasets>(options.state_dir + "/listings")),
      builder_(std::move(options.build), std::move(registry), io, caches, table_, kept_.get()),
      listings_({.per_user = options.listings_per_user}) {}

Catalogue::~Catalogue() = default;

Result<PipelinePtr> Catalogue::build(const job::PipelineOwner& owner,
                                     const job::ApplyRequest& request, const Progress& progress) {
  // An apply wants the files that are there now, and not those that another call has listed before.
  const std::string serial =
      request.from_loader || !request.dataset.empty() ? std::string() : std::to_string(++serial_);
  return wait<PipelinePtr>(listings_, progress, [&](const ListingAsker& asker) {
    return build(owner, request, asker, serial);
  });
}

Asked<PipelinePtr> Catalogue::build(const job::PipelineOwner& owner,
                                    const job::ApplyRequest& request, const ListingAsker& asker,
                                    const std::string& serial) {
  const Credentials reader = reader_of(owner.uid, request.reader);
  return ask<PipelinePtr>(
      listings_, reader.uid,
      ListingKey(options().access, "build", serial, owner, request, reader).text(),
      [this, owner, request, reader](const Progress& progress) {
        return builder_.build(owner, request, reader, progress);
      },
      asker);
}

Result<PipelineText> Catalogue::text_of(uid_t owner, const job::ApplyRequest& request,
                                        const Progress& progress) {
  return wait<PipelineText>(listings_, progress, [&](const ListingAsker& asker) {
    return text_of(owner, request, asker);
  });
}

Asked<PipelineText> Catalogue::text_of(uid_t owner, const job::ApplyRequest& request,
                                       const ListingAsker& asker) {
  if (request.yaml.find("extends") == std::string::npos) return builder_.text_of(owner, request);
  const Credentials reader = reader_of(owner, request.reader);
  return ask<PipelineText>(
      listings_, reader.uid, ListingKey(options().access, "text", owner, request, reader).text(),
      [this, owner, request](const Progress&) { return builder_.text_of(owner, request); }, asker);
}

Result<PipelinePtr> Catalogue::variant(const PipelinePtr& base, const Variation& variation,
                                       const Progress& progress) {
  return wait<PipelinePtr>(listings_, progress, [&](const ListingAsker& asker) {
    return variant(base, variation, asker);
  });
}

Asked<PipelinePtr> Catalogue::variant(const PipelinePtr& base, const Variation& variation,
                                      const ListingAsker& asker) {
  std::optional<PipelinePtr> open = table_.find_open(base);
  if (*open == nullptr) {
    SPDLD_ASSIGN(
        open,
        ask<PipelinePtr>(
            listings_, base->reader.uid,
            ListingKey(options().access, "open", base->id(), base->version, base->content_digest)
                .text(),
            [this, base](const Progress& progress) { return builder_.open(base, progress); },
            asker));
  }
  if (!open ||
      (variation.is_none_of(**open) && builder_.is_trusted_reader(**open, variation.reader)))
    return open;
  return ask<PipelinePtr>(
      listings_, variation.reader.uid,
      ListingKey(options().access, "variant", **open, variation.vars, variation.batch_size,
                 variation.reader, variation.files == VariantFiles::kNow)
          .text(),
      [this, open = *open, variation](const Progress& progress) {
        return builder_.variant(open, variation, progress);
      },
      asker);
}

Result<PipelinePtr> Catalogue::rebuild(const job::PipelineOwner& owner,
                                       const job::ApplyRequest& request, const Recorded& as,
                                       const Progress& progress) {
  return wait<PipelinePtr>(listings_, progress, [&](const ListingAsker& asker) {
    return rebuild(owner, request, as, asker);
  });
}

Asked<PipelinePtr> Catalogue::rebuild(const job::PipelineOwner& owner,
                                      const job::ApplyRequest& request, const Recorded& as,
                                      const ListingAsker& asker) {
  const Credentials reader = reader_of(owner.uid, as.reader ? as.reader : request.reader);
  return ask<PipelinePtr>(
      listings_, reader.uid,
      ListingKey(options().access, "rebuild", owner, request, as.version, as.batch_size, reader)
          .text(),
      [=, this](const Progress& progress) -> Result<PipelinePtr> {
        SPDLD_ASSIGN(PipelinePtr made, builder_.build(owner, request, reader, progress));
        if (as.batch_size) {
          const Variation sized{.batch_size = as.batch_size, .reader = reader};
          SPDLD_ASSIGN(made, builder_.variant(made, sized, progress));
        }
        auto numbered = std::make_shared<PipelineVersion>(*made);
        numbered->version = as.version;
        return PipelinePtr(std::move(numbered));
      },
      asker);
}

Result<PipelinePtr> Catalogue::recall(const job::PipelineOwner& owner,
                                      const job::ApplyRequest& request, const Recorded& as) {
  const auto answered = [](Status why) -> Result<PipelinePtr> {
    if (why.code() == Code::kCancelled)
      why = {Code::kUnavailable, "neither its storage nor a process of its user's answers"};
    return tl::unexpected<Status>(std::move(why));
  };
  if (const auto text = text_of(owner.uid, request, while_it_answers()); !text)
    return answered(text.error());
  if (auto recalled = builder_.recall(owner, request, as)) return recalled;
  auto open = rebuild(owner, request, as, while_it_answers());
  return open ? open : answered(open.error());
}

Asked<std::string> Catalogue::look_for_changes(const PipelineVersion& pipeline,
                                               const ListingAsker& asker) {
  return ask<std::string>(
      listings_, pipeline.reader.uid, ListingKey(options().access, "changes", pipeline).text(),
      [this, pipeline](const Progress& progress) -> Result<std::string> {
        std::string warning = builder_.change_of(pipeline, progress);
        // A job that was brought back has a version of its own: status tells of the current one.
        const PipelinePtr current = table_.find(pipeline.id());
        const bool same =
            current != nullptr && current->request.dataset == pipeline.request.dataset;
        ListedSources& listed = same ? *current->listed : *pipeline.listed;
        if (listed.set_changed(pipeline.plan->spec.source, warning) && !warning.empty())
          spdlog::warn("{}", warning);
        return warning;
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
  for (const PipelinePtr& pipeline : table_.visible_to(caller)) {
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
  if (table_.is_admin(caller)) return caches;
  std::set<std::string> origins;
  for (const PipelinePtr& pipeline : table_.visible_to(caller))
    origins.insert(pipeline->source->origin());
  for (engine::SampleCache::Snapshot& cache : caches) {
    if (!origins.contains(cache.origin))
      cache.name = std::string(name_of(cache.form)) + " data of another user";
  }
  return caches;
}

std::size_t Catalogue::close_unused() {
  return table_.close([this, used = table_.take_used()](const PipelineVersion& pipeline) {
    return !used.contains(pipeline.id()) && builder_.is_kept(pipeline);
  });
}

std::set<std::string> Catalogue::listings_in_use() const {
  std::set<std::string> used;
  if (kept_ != nullptr) used = kept_->in_use();
  for (const PipelinePtr& pipeline : table_.all()) {
    for (std::string& dataset : pipeline->listed->datasets()) used.insert(std::move(dataset));
  }
  return used;
}

Status Catalogue::collect_listings(const std::set<std::string>& used) {
  return kept_ == nullptr ? Status() : kept_->collect(used, kCollectAfter);
}

}  // namespace spdld::pipeline
