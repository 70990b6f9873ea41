// SPDX-License-Identifier: Apache-2.0
#include "source/files_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/counted.h"
#include "base/unique_fd.h"
#include "source/access.h"
#include "source/classes.h"
#include "source/disk.h"
#include "source/file_fetcher.h"
#include "source/glob.h"
#include "source/listing.h"
#include "source/listing_file.h"
#include "source/walk.h"

namespace spdld::source {
namespace {

class FilesSource final : public Source {
 public:
  FilesSource(Listing listing, std::vector<TensorSpec> fields, std::vector<std::string> classes,
              std::vector<std::int64_t> labels, std::unique_ptr<Disk> disk, IoPool& io,
              FileFetcher::Options fetching)
      : listing_(std::move(listing)),
        fields_(std::move(fields)),
        classes_(std::move(classes)),
        labels_(std::move(labels)),
        origin_("files " + fetching.root),
        fetcher_(std::move(disk), io, std::move(fetching)) {}

  std::uint64_t size() const override { return listing_.size(); }
  const std::string& listing_digest() const override { return listing_.digest(); }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string uri(std::uint64_t item) const override { return listing_.uri(item); }

  std::int64_t scalar(std::uint64_t item, std::size_t field) const override {
    SPDLD_CHECK(item < size() && field == 1 && fields_.size() == 2);
    const auto& runs = listing_.runs();
    const auto next =
        std::upper_bound(runs.begin(), runs.end(), item,
                         [](std::uint64_t wanted, const auto& run) { return wanted < run.first; });
    return labels_[static_cast<std::size_t>(next - runs.begin()) - 1];
  }

  Result<FetchState> fetch(std::uint64_t item, ByteBuffer& out, FetchSink& sink,
                           std::uint64_t token) override {
    return fetcher_.fetch(listing_.uri(item), out, sink, token);
  }
  Result<FetchState> fetch_revision(std::uint64_t item, ByteBuffer& out, Revision& revision,
                                    FetchSink& sink, std::uint64_t token) override {
    return fetcher_.fetch(listing_.uri(item), out, sink, token, &revision);
  }
  std::string origin() const override { return origin_; }

 private:
  const Listing listing_;
  const std::vector<TensorSpec> fields_;
  const std::vector<std::string> classes_;
  const std::vector<std::int64_t> labels_;  // of each of the listing's runs
  const std::string origin_;
  FileFetcher fetcher_;
};

struct Root {
  std::string path;  // after symlinks
  UniqueFd fd;
  dev_t device = 0;
};

Result<Root> open_root(const std::string& path, const Roots& roots) {
  if (path.empty() || path[0] != '/') {
    return error(Code::kInvalidArgument, "root '" + path + "' is no absolute path");
  }
  Root root;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 && errno == ENOENT) {
    return error(Code::kNotFound,
                 "source.files.root: there is no directory " + path +
                     " where spdld runs; name another, or if it is made of a variable, give that: "
                     "--var NAME=VALUE, or vars={\"NAME\": VALUE} in a Loader");
  }
  SPDLD_ASSIGN(root.path, roots.resolve(path));
  root.fd = UniqueFd(::open(root.path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.fd || ::fstat(root.fd.get(), &info) != 0) {
    return tl::unexpected(path_error(errno, "cannot list", path));
  }
  root.device = info.st_dev;
  return root;
}

// All that the listing depends on, but the directories themselves.
std::string index_key(const Root& root, const FilesSpec& spec, const FilesOptions& options) {
  std::string key = "files " + root.path + "\npattern " + spec.pattern + "\nfollow_symlinks " +
                    (spec.follow_symlinks ? "true" : "false");
  for (const std::string& allowed : options.roots) key += "\nroot " + allowed;
  return key;
}

std::string index_path(const std::string& state_dir, const std::string& key) {
  char name[17];
  std::snprintf(name, sizeof name, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(key.data(), key.size())));
  return state_dir + "/index/" + name + ".idx";
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

class Opener {
 public:
  Opener(const FilesSpec& spec, FilesOptions& options)
      : spec_(spec), options_(options), roots_(options.roots) {}

  Result<std::unique_ptr<Source>> open();

 private:
  Result<Listing> list(const Root& root);
  void warn(std::string text) {
    if (options_.warnings != nullptr) options_.warnings->push_back(std::move(text));
  }
  void warn_of_empty(const std::vector<std::string>& classes,
                     const std::vector<std::int64_t>& labels);

  const FilesSpec& spec_;
  FilesOptions& options_;
  const Roots roots_;
};

Result<Listing> Opener::list(const Root& root) {
  SPDLD_ASSIGN(const Glob glob, Glob::parse(spec_.pattern));
  const std::string key = index_key(root, spec_, options_);
  const std::string path = index_path(options_.state_dir, key);
  if (!options_.state_dir.empty()) {
    Result<Listing> kept = ListingFile::load(key, path);
    if (kept && kept->size() <= options_.max_items &&
        is_unchanged(root.fd.get(), *kept, options_.listing_threads)) {
      if (options_.progress) options_.progress(kept->size());
      return kept;
    }
    if (!kept && kept.error().code() != Code::kNotFound) {
      warn(kept.error().message() + "; the files were listed again");
    }
  }
  SPDLD_ASSIGN(Walk walk, source::walk(root.fd.get(), glob, roots_,
                                       {.root = root.path,
                                        .follow_symlinks = spec_.follow_symlinks,
                                        .threads = options_.listing_threads,
                                        .max_items = options_.max_items,
                                        .progress = options_.progress,
                                        .stop = options_.stop}));
  for (std::string& warning : walk.warnings) warn(std::move(warning));
  if (walk.listing.size() == 0) return tl::unexpected(empty(spec_, walk));
  if (!options_.state_dir.empty()) {
    if (const Status saved = ListingFile::save(walk.listing, key, path); !saved.ok()) {
      warn("the listing of " + spec_.root +
           " was not kept and will be made again after a restart: " + saved.message());
    }
  }
  return std::move(walk.listing);
}

void Opener::warn_of_empty(const std::vector<std::string>& classes,
                           const std::vector<std::int64_t>& labels) {
  std::vector<bool> used(classes.size());
  for (const std::int64_t label : labels) used[static_cast<std::size_t>(label)] = true;
  const auto unused = static_cast<std::size_t>(std::count(used.begin(), used.end(), false));
  if (unused == 0) return;
  const auto first =
      static_cast<std::size_t>(std::find(used.begin(), used.end(), false) - used.begin());
  warn(std::to_string(unused) + " of " + std::to_string(classes.size()) + " classes of " +
       spec_.root + " have no item, such as '" + classes[first] + "'");
}

Result<std::unique_ptr<Source>> Opener::open() {
  SPDLD_ASSIGN(Root root, open_root(spec_.root, roots_));
  SPDLD_ASSIGN(Listing listing, list(root));

  std::vector<TensorSpec> fields{{.name = options_.field, .kind = FieldKind::kBytes, .shape = {}}};
  std::vector<std::string> classes;
  std::vector<std::int64_t> labels;
  if (spec_.label == FilesSpec::Label::kParentDir) {
    fields.push_back({.name = "label", .dtype = DType::kInt64, .shape = {}});
    SPDLD_ASSIGN(classes, class_names(spec_.classes, listing, options_.classes, roots_));
    SPDLD_ASSIGN(labels, label_runs(listing, classes));
    warn_of_empty(classes, labels);
  }
  if (!options_.disk) {
    options_.disk = std::make_unique<SystemDisk>(
        std::move(root.fd), root.path, roots_, spec_.follow_symlinks, listing.remote, root.device);
  }
  return std::make_unique<FilesSource>(
      std::move(listing), std::move(fields), std::move(classes), std::move(labels),
      std::move(options_.disk), options_.io,
      FileFetcher::Options{.root = root.path,
                           .retry = options_.retry,
                           .retry_pause = options_.retry_pause,
                           .max_file_bytes = options_.max_file_bytes});
}

}  // namespace

FilesOptions::FilesOptions(IoPool& pool) : io(pool) {}
FilesOptions::FilesOptions(FilesOptions&&) noexcept = default;
FilesOptions::~FilesOptions() = default;

Result<std::unique_ptr<Source>> open_files(const FilesSpec& spec, FilesOptions options) {
  return Opener(spec, options).open();
}

}  // namespace spdld::source
