// SPDX-License-Identifier: Apache-2.0
#include "source/files_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text/counted.h"
#include "posix/unique_fd.h"
#include "source/file/access.h"
#include "source/file/disk.h"
#include "source/file/file_fetcher.h"
#include "source/file/reopening_disk.h"
#include "source/file/root_disk.h"
#include "source/item/item_hashes.h"
#include "source/item/suffixes.h"
#include "source/kept/dataset_id.h"
#include "source/kept/kept_datasets.h"
#include "source/listing/classes.h"
#include "source/listing/companions.h"
#include "source/listing/glob.h"
#include "source/listing/listed_directories.h"
#include "source/listing/listing.h"
#include "source/listing/walk.h"

namespace spdld::source {
namespace {

// What an applied source is made of: all of it that does not depend on who reads it.
struct Files {
  FilesDatasetPtr dataset;
  std::string root;       // as the pipeline names it
  std::string real_root;  // after symlinks, when it was listed or opened again
  Access::Links links = Access::Links::kFollow;
  AccessRules access;
  std::vector<CompanionPattern> companions;  // the parts behind the first
  std::vector<SourceField> fields;
  std::vector<std::int64_t> labels;  // of each of the listing's runs
  int listing_threads = 1;
  FileFetcher::Options fetcher;
};
using FilesPtr = std::shared_ptr<const Files>;

// Whether the reader may have what a listing says that another one made, or an earlier daemon. A
// root that is not there shows nothing: its files are looked for one by one.
Status check_reader(const Result<Root>& root, const Listing& listing, const Access& access,
                    Access::Links links, int threads) {
  if (!root && root.error().code() == Code::kPermissionDenied) return root.error();
  if (!root) return {};
  return may_list(root->fd.get(), root->path, listing, access, links, threads);
}

std::unique_ptr<ReopeningDisk> make_disk(const Files& files,
                                         const std::shared_ptr<const Access>& access,
                                         Result<Root> root) {
  return make_root_disk({.root = files.root,
                         .key = kFilesRootKey,
                         .links = files.links,
                         .access = files.access,
                         .remote = files.dataset->listing->remote},
                        access, std::move(root));
}

class FilesSource final : public Source {
 public:
  // `root`: reads what `disk` does, if there is one whose root can be opened again.
  FilesSource(FilesPtr files, std::unique_ptr<Disk> disk, ReopeningDisk* root, IoPool& io,
              uid_t reader)
      : files_(std::move(files)),
        listing_(*files_->dataset->listing),
        origin_("files " + files_->real_root),
        reopening_(root),
        io_(io),
        fetcher_(one_root(files_->real_root, std::move(disk)), io, reader, files_->fetcher) {}

  std::uint64_t size() const override { return listing_.size(); }
  const std::string& listing_digest() const override { return listing_.digest(); }
  const std::vector<SourceField>& fields() const override { return files_->fields; }
  const std::vector<std::string>& classes() const override { return files_->dataset->classes; }
  std::string dataset() const override { return files_->dataset->id; }
  std::string uri(std::uint64_t item) const override { return listing_.uri(item); }

  // The label.
  Value value(std::uint64_t item, std::size_t value) const override {
    SPDLD_CHECK(item < size() && value == 0 && !files_->labels.empty());
    const auto& runs = listing_.runs();
    const auto next =
        std::upper_bound(runs.begin(), runs.end(), item,
                         [](std::uint64_t wanted, const auto& run) { return wanted < run.first; });
    return files_->labels[static_cast<std::size_t>(next - runs.begin()) - 1];
  }

  Result<FetchState> fetch(std::uint64_t item, std::span<const PartRequest> requests,
                           FetchedItem& out, FetchSink& sink, std::uint64_t token) override {
    SPDLD_TRY(lay_out(item, requests, out));
    return fetcher_.fetch(out, sink, token);
  }
  Result<std::unique_ptr<PartBytes>> open_part(std::uint64_t item,
                                               std::size_t part) const override {
    ItemBytes at;
    const PartRequest whole{.part = part};
    SPDLD_TRY(lay_out(item, {&whole, 1}, at));
    return fetcher_.open(at);
  }
  std::vector<std::string> suffixes(std::size_t part) const override {
    std::vector<std::string> suffixes;
    for (std::uint64_t item = 0; item < std::min(size(), kMostSeen); ++item) {
      const std::string uri = listing_.uri(item);
      if (part == 0) {
        add_suffix(uri, suffixes);
      } else if (const auto companion = files_->companions[part - 1].uri(uri)) {
        add_suffix(*companion, suffixes);
      }
    }
    return suffixes;
  }
  std::string origin() const override { return origin_; }
  std::uint64_t part_key(std::uint64_t item, std::size_t part) const override {
    std::string uri = listing_.uri(item);
    if (part > 0) {
      const auto companion = files_->companions[part - 1].uri(uri);
      if (companion) uri = *companion;  // else there is nothing that could be kept
    }
    return source::part_key(uri, 0, 0);
  }

  Result<std::unique_ptr<Source>> read_by(const Credentials& reader) const override {
    const auto access = std::make_shared<const Access>(files_->access, reader);
    Result<Root> root = open_root(files_->root, *access, kFilesRootKey);
    SPDLD_TRY(check_reader(root, listing_, *access, files_->links, files_->listing_threads));
    auto disk = make_disk(*files_, access, std::move(root));
    ReopeningDisk* const reopening = disk.get();
    return std::make_unique<FilesSource>(files_, std::move(disk), reopening, io_, reader.uid);
  }

  void look_again() override {
    if (reopening_ != nullptr) reopening_->look_again();
  }
  bool has_changed() override {
    const UniqueFd root(::open(files_->real_root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return !root || source::has_changed(root.get(), listing_, files_->listing_threads);
  }

 private:
  // The file that each request is about.
  Status lay_out(std::uint64_t item, std::span<const PartRequest> requests, ItemBytes& out) const {
    out.begin();
    for (const PartRequest& request : requests) {
      SPDLD_CHECK(request.part <= files_->companions.size());
      out.add_place({.range = out.ranges().size()});
      FileRange& range = out.add_range();
      range.uri = listing_.uri(item);
      if (request.part > 0) {
        SPDLD_ASSIGN(range.uri, files_->companions[request.part - 1].uri(range.uri));
        range.listed = false;
        range.may_be_absent = files_->fields[request.part].optional;
      }
      range.offset = request.offset;
      range.size_bytes = request.size_bytes;
      if (request.expected != nullptr) range.expected = *request.expected;
    }
    return {};
  }

  const FilesPtr files_;
  const Listing& listing_;  // the dataset's
  const std::string origin_;
  ReopeningDisk* const reopening_;  // the fetcher's
  IoPool& io_;
  FileFetcher fetcher_;
};

// All that the listing depends on, but the directories themselves.
std::string listing_key(const Root& root, const FilesSpec& spec, const SourceOptions& options) {
  std::string key = "files " + root.path + "\npattern " + spec.pattern + "\nfollow_symlinks " +
                    (spec.follow_symlinks ? "true" : "false");
  for (const AccessRoot& allowed : options.access.roots) key += "\nroot " + allowed.path;
  for (const std::string& own : options.access.own_directories) {
    if (is_beneath(own, root.path)) key += "\nwithout " + own;
  }
  return key;
}

Status empty(const FilesSpec& spec, const Walk& walk) {
  std::string text = "no file below " + spec.root + " matches the pattern '" + spec.pattern + "': ";
  if (walk.files_seen == 0) {
    text += "there are no files in the directories that it covers";
  } else {
    text += counted(walk.files_seen, "file was", "files were") + " seen, such as " + walk.a_file +
            "; the pattern is compared with such paths, and tells case apart";
  }
  return Status(Code::kNotFound, text);
}

class FilesOpener {
 public:
  FilesOpener(const FilesSpec& spec, SourceOptions& options)
      : spec_(spec),
        options_(options),
        access_(std::make_shared<const Access>(options.access, options.reader)),
        links_(spec.follow_symlinks ? Access::Links::kFollow : Access::Links::kRefuse) {}

  Result<std::unique_ptr<Source>> open();

 private:
  using ListingPtr = std::shared_ptr<const Listing>;

  // With the classes that were applied, if they are known.
  Result<FilesDatasetPtr> list(const Root& root, const std::vector<std::string>* applied = nullptr);
  Result<FilesDatasetPtr> reopen(const Result<Root>& root);
  Result<ListingPtr> files(const Root& root, const std::string& key);
  void warn(std::string text) {
    if (options_.warnings != nullptr) options_.warnings->push_back(std::move(text));
  }
  Status check_companions(const Files& files, const Root& root) const;
  void warn_of_empty(const std::vector<std::string>& classes,
                     const std::vector<std::int64_t>& labels);
  bool labelled() const { return spec_.label == FilesSpec::Label::kParentDir; }

  const FilesSpec& spec_;
  SourceOptions& options_;
  const std::shared_ptr<const Access> access_;
  const Access::Links links_;
};

Result<FilesOpener::ListingPtr> FilesOpener::files(const Root& root, const std::string& key) {
  SPDLD_ASSIGN(const Glob glob, Glob::parse(spec_.pattern));
  std::vector<Glob> exclude;
  for (const std::string& pattern : spec_.exclude) {
    SPDLD_ASSIGN(Glob each, Glob::parse(pattern));
    exclude.push_back(std::move(each));
  }
  if (options_.kept != nullptr) {
    const Result<ListingPtr> last = options_.kept->listings().latest(key, options_.share());
    if (!last && last.error().code() == Code::kResourceExhausted) return last;
    if (last && (*last)->size() <= options_.max_items &&
        is_unchanged(root.fd.get(), **last, options_.listing_threads)) {
      // Another reader may have listed it.
      SPDLD_TRY(
          may_list(root.fd.get(), root.path, **last, *access_, links_, options_.listing_threads));
      if (options_.progress) options_.progress((*last)->size(), "");
      return *last;
    }
    if (!last && last.error().code() != Code::kNotFound) {
      warn(last.error().message() + "; the files were listed again");
    }
  }
  const ListingMemory::SharePtr memory = options_.share();
  SPDLD_ASSIGN(Walk walk, source::walk(root.fd.get(), glob, *access_,
                                       {.root = root.path,
                                        .links = links_,
                                        .exclude = std::move(exclude),
                                        .threads = options_.listing_threads,
                                        .max_items = options_.max_items,
                                        .max_directories = options_.max_directories,
                                        .memory = memory,
                                        .progress =
                                            [this](std::uint64_t seen) {
                                              if (options_.progress) options_.progress(seen, "");
                                            },
                                        .stop = options_.stop}));
  for (std::string& warning : walk.warnings) warn(std::move(warning));
  if (walk.listing.size() == 0) return tl::unexpected(empty(spec_, walk));
  SPDLD_TRY(memory->resize(walk.listing.memory_bytes()).with_context(spec_.root));
  walk.listing.memory = memory;
  auto listing = std::make_shared<const Listing>(std::move(walk.listing));
  if (options_.kept != nullptr) {
    if (const Status saved = options_.kept->listings().keep(key, listing); !saved.ok()) {
      warn("the listing of " + spec_.root +
           " was not kept and will be made again after a restart: " + saved.message());
    }
  }
  return ListingPtr(std::move(listing));
}

Result<FilesDatasetPtr> FilesOpener::list(const Root& root,
                                          const std::vector<std::string>* applied) {
  std::string key = listing_key(root, spec_, options_);
  for (const std::string& pattern : spec_.exclude) key += "\nexclude " + pattern;
  SPDLD_ASSIGN(ListingPtr listing, files(root, key));
  std::vector<std::string> classes;
  ListingMemory::SharePtr memory = options_.share();
  if (labelled() && applied != nullptr) {
    classes = *applied;
  } else if (labelled()) {
    SPDLD_ASSIGN(classes,
                 class_names(spec_.classes, *listing, options_.classes, *access_, memory.get()));
  }
  SPDLD_TRY(memory->resize(memory_bytes(classes)).with_context("the classes of " + spec_.root));
  if (options_.kept == nullptr)
    return std::make_shared<const FilesDataset>(FilesDataset{
        .listing = std::move(listing), .classes = std::move(classes), .memory = std::move(memory)});
  Status saved;
  FilesDatasetPtr dataset = options_.kept->listings().add(
      key, std::move(listing), std::move(classes), labelled(), std::move(memory), saved);
  if (!saved.ok())
    warn("the classes of " + spec_.root +
         " were not kept and will be read again after a restart: " + saved.message());
  return dataset;
}

// What is lost is listed again, which is good if it comes to the same.
Result<FilesDatasetPtr> FilesOpener::reopen(const Result<Root>& root) {
  Result<FilesDatasetPtr> kept =
      options_.kept->listings().open(options_.dataset, *options_.memory, options_.reader.uid);
  if (!kept && kept.error().code() == Code::kResourceExhausted) return kept;
  if (options_.from_kept_alone) return kept;
  if (kept) {
    SPDLD_TRY(check_reader(root, *(*kept)->listing, *access_, links_, options_.listing_threads));
    return kept;
  }
  const std::string why = "what was applied cannot be opened: " + kept.error().message();
  const std::string way_out =
      "; bring that file back, or apply the pipeline again and start its jobs anew";
  if (!root)
    return error(Code::kDataLoss, why + ", nor listed again: " + root.error().message() + way_out);
  // They may have come from elsewhere: another pipeline, or the other roots.
  const Result<std::vector<std::string>> classes = options_.kept->classes_of(options_.dataset);
  const Result<FilesDatasetPtr> again = list(*root, classes ? &*classes : nullptr);
  if (!again && again.error().code() == Code::kCancelled) return again;
  if (!again)
    return error(Code::kDataLoss, why + ", nor listed again: " + again.error().message() + way_out);
  if (!is_same_data((*again)->id, options_.dataset))
    return error(Code::kDataLoss, why + ", and " + spec_.root +
                                      " has other files by now, or other classes" + way_out);
  warn(why + "; " + spec_.root + " was listed again, and has the same files");
  return again;
}

void FilesOpener::warn_of_empty(const std::vector<std::string>& classes,
                                const std::vector<std::int64_t>& labels) {
  std::vector<bool> used(classes.size());
  for (const std::int64_t label : labels) used[static_cast<std::size_t>(label)] = true;
  const auto unused = static_cast<std::size_t>(std::count(used.begin(), used.end(), false));
  if (unused == 0) return;
  const auto first =
      static_cast<std::size_t>(std::find(used.begin(), used.end(), false) - used.begin());
  // Operators see it, whoever may read the file of names.
  const std::string such = spec_.classes.kind == ClassesSpec::Kind::kFile
                               ? "name " + std::to_string(first + 1) + " of " + spec_.classes.path
                               : "'" + classes[first] + "'";
  warn(std::to_string(unused) + " of " + std::to_string(classes.size()) + " classes of " +
       spec_.root + " have no item, such as " + such);
}

// A pattern that is wrong shows in the first item already, or, where items need not have the
// companion, in the first ones.
Status FilesOpener::check_companions(const Files& files, const Root& root) const {
  const Listing& listing = *files.dataset->listing;
  for (std::size_t i = 0; i < files.companions.size(); ++i) {
    const bool optional = spec_.companions[i].optional;
    const std::uint64_t looked_at = optional ? std::min(listing.size(), Source::kMostSeen) : 1;
    const std::string key = "source.files.companions." + spec_.companions[i].field;
    bool is_there = false;
    for (std::uint64_t item = 0; item < looked_at && !is_there; ++item) {
      SPDLD_ASSIGN(const std::string uri, files.companions[i].uri(listing.uri(item)));
      struct stat info {};
      const Denial denial = access_->look(root.fd.get(), uri, info);
      is_there = denial.err == 0;
      if (!is_there && denial.err != ENOENT && denial.err != ENOTDIR)
        return Access::status(denial, key, root.path + "/" + uri);
    }
    if (is_there) continue;
    SPDLD_ASSIGN(const std::string uri, files.companions[i].uri(listing.uri(0)));
    if (!optional)
      return {Code::kNotFound,
              key + ": there is no file " + root.path + "/" + uri + " for " + listing.uri(0) +
                  ", the first item; correct the pattern, bring the file there, or name the field "
                  "under 'optional' if items need not have one"};
    return {Code::kNotFound, key + ": none of the first " + counted(looked_at, "item") +
                                 " has one, such as " + root.path + "/" + uri + " for " +
                                 listing.uri(0) +
                                 "; correct the pattern, or leave the companion out"};
  }
  return {};
}

Result<std::unique_ptr<Source>> FilesOpener::open() {
  Result<Root> root = options_.from_kept_alone ? not_looked_at(spec_.root)
                                               : open_root(spec_.root, *access_, kFilesRootKey);
  const bool again = options_.kept != nullptr && !options_.dataset.empty();
  // A root that is not there has nothing to list. What was applied is opened all the same: its
  // files may come back.
  if (!root && !again) return tl::unexpected(root.error());
  auto files = std::make_shared<Files>();
  SPDLD_ASSIGN(files->dataset, again ? reopen(root) : list(*root));
  files->fields.push_back({.name = spec_.field});
  for (const FilesSpec::Companion& companion : spec_.companions) {
    SPDLD_ASSIGN(CompanionPattern pattern, CompanionPattern::parse(companion.pattern));
    files->companions.push_back(std::move(pattern));
    files->fields.push_back({.name = companion.field,
                             .index = files->companions.size(),
                             .text = is_text_suffix(companion.pattern),
                             .optional = companion.optional});
  }
  SPDLD_TRY(FileFetcher::check_parts(files->fields.size(), "source.files.companions"));
  if (!again) SPDLD_TRY(check_companions(*files, *root));
  if (labelled()) {
    files->fields.push_back({.name = "label", .kind = SourceField::Kind::kValue, .classes = true});
    SPDLD_ASSIGN(files->labels, label_runs(*files->dataset->listing, files->dataset->classes));
    warn_of_empty(files->dataset->classes, files->labels);
  }
  files->root = spec_.root;
  files->real_root = root ? root->path : spec_.root;
  files->links = links_;
  files->access = options_.access;
  files->listing_threads = options_.listing_threads;
  files->fetcher = FileFetcher::options_of(options_);
  ReopeningDisk* reopening = nullptr;
  if (!options_.disk) {
    auto made = make_disk(*files, access_, std::move(root));
    reopening = made.get();
    options_.disk = std::move(made);
  }
  return std::make_unique<FilesSource>(std::move(files), std::move(options_.disk), reopening,
                                       options_.io, options_.reader.uid);
}

}  // namespace

Result<std::unique_ptr<Source>> open_files(const FilesSpec& spec, SourceOptions options) {
  return FilesOpener(spec, options).open();
}

}  // namespace spdld::source
