// SPDX-License-Identifier: Apache-2.0
#include "source/tar/tar_index_build.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "base/text/near_names.h"
#include "base/text/printable.h"
#include "source/bytes/binary.h"
#include "source/bytes/digest_text.h"
#include "source/bytes/file_bytes.h"
#include "source/bytes/ordered_tasks.h"
#include "source/bytes/unkept_tasks.h"
#include "source/bytes/whole_file.h"
#include "source/file/disk.h"
#include "source/file/index_files.h"
#include "source/tar/shard_files.h"
#include "source/tar/shard_names.h"
#include "source/tar/shard_scan.h"
#include "source/tar/tar_index_file.h"

namespace spdld::source {
namespace {

constexpr std::string_view kTarIndex = ".tarindex";
constexpr std::size_t kShownMissing = 5;
constexpr std::size_t kMaxShardWarnings = 20;

// What all indexes begin with that say the same of their shards.
std::string query_stem(const IndexQuery& query) { return short_digest_text(query.key()) + "-"; }

std::string file_stem(const IndexQuery& query) {
  BinaryWriter out;
  for (const std::string& shard : query.spec().shards) out.string(shard);
  return query_stem(query) + short_digest_text(out.text());
}

// Makes one index. Its tasks share it; what each writes is its own shard's.
class TarIndexMaker {
 public:
  TarIndexMaker(const IndexQuery& query, const Access& access, const TarIndexOptions& options)
      : query_(query),
        access_(access),
        options_(options),
        stem_(file_stem(query)),
        kept_files_(options.directory, kTarIndex),
        unkept_(options.keep_each) {}

  Result<OpenedTarIndex> make();

 private:
  struct Shard {
    std::string path;
    std::optional<ItemStamp> stamp;  // none: the file is missing
    std::optional<ShardIndex> index;
  };
  using Clock = std::chrono::steady_clock;

  void warn(std::string text) SPDLD_EXCLUDES(mutex_);
  void report() const;

  Status look_at_shards();
  Status look_at(Shard& shard);
  Status missing() const;
  // Takes what is kept of shards that are as they were. The name of what is the index as it is, or
  // empty.
  std::string take_kept();
  bool take_file(const std::string& name);

  Status count(const ShardIndex& index);
  Status read_shards();
  Status read_shard(std::size_t number, const std::function<bool()>& given_up)
      SPDLD_EXCLUDES(mutex_);
  // Keeps the indexes of these shards; of none, does nothing.
  void keep_part(const std::vector<std::size_t>& numbers) SPDLD_EXCLUDES(mutex_);
  // Its name; empty: it could not be kept.
  std::string keep_whole(const TarIndex& index, const std::string& text);

  const IndexQuery& query_;
  const Access& access_;
  const TarIndexOptions& options_;
  const std::string stem_;  // of file names
  const IndexFiles kept_files_;
  UnkeptTasks unkept_;         // those that were read
  std::vector<Shard> shards_;  // each changed by one task at a time
  std::uint64_t bytes_ = 0;
  std::uint64_t shards_kept_ = 0;
  ScanMeter meter_;
  std::atomic<std::uint64_t> shards_done_ = 0;    // relaxed: for progress
  std::atomic<std::uint64_t> counted_bytes_ = 0;  // relaxed: a sum

  Mutex mutex_;
  std::uint64_t warned_ SPDLD_GUARDED_BY(mutex_) = 0;
  bool keeping_failed_ SPDLD_GUARDED_BY(mutex_) = false;
};

void TarIndexMaker::warn(std::string text) {
  if (options_.warnings == nullptr) return;
  MutexLock lock(mutex_);
  if (warned_++ < kMaxShardWarnings) options_.warnings->push_back(std::move(text));
}

void TarIndexMaker::report() const {
  if (!options_.progress) return;
  options_.progress({.shards = shards_.size(),
                     .shards_kept = shards_kept_,
                     .shards_done = shards_done_.load(std::memory_order_relaxed),
                     .samples = meter_.samples,
                     .bytes = bytes_,
                     .bytes_done = meter_.bytes});
}

Result<OpenedTarIndex> TarIndexMaker::make() {
  std::vector<std::string> found;
  SPDLD_ASSIGN(std::vector<std::string> paths, shard_paths(query_.spec().shards, access_,
                                                           {.max_shards = options_.max_shards,
                                                            .threads = options_.threads,
                                                            .stop = options_.stop,
                                                            .warnings = &found}));
  for (std::string& warning : found) warn(std::move(warning));
  shards_.reserve(paths.size());
  for (std::string& path : paths) shards_.emplace_back().path = std::move(path);
  SPDLD_TRY(look_at_shards());

  std::string name = kept_files_.keeps() ? take_kept() : std::string();
  if (const Status read = read_shards(); !read.ok()) {
    keep_part(unkept_.take());
    if (read.code() != Code::kCancelled) return tl::unexpected(read);
    return error(Code::kCancelled, "the index of " + shards_[0].path +
                                       " and the other shards was "
                                       "stopped");
  }
  const bool is_new = kept_files_.keeps() && name.empty();
  std::string text;  // written from the shards, which the index takes
  if (is_new) {
    std::vector<const ShardIndex*> all;
    all.reserve(shards_.size());
    for (const Shard& shard : shards_) all.push_back(&*shard.index);
    text = shard_indexes_text(all, query_);
  }
  std::vector<ShardIndex> indexes;
  indexes.reserve(shards_.size());
  for (Shard& shard : shards_) indexes.push_back(std::move(*shard.index));
  shards_ = {};
  SPDLD_ASSIGN(TarIndex index, TarIndex::make(query_, std::move(indexes)));
  if (is_new) name = keep_whole(index, text);
  return OpenedTarIndex{.index = std::make_shared<const TarIndex>(std::move(index)),
                        .name = std::move(name)};
}

Status TarIndexMaker::look_at_shards() {
  const Status looked = run_in_order(
      {.count = shards_.size(),
       .threads = options_.threads,
       .stop = options_.stop,
       .task = [this](std::size_t number, const auto&) { return look_at(shards_[number]); }});
  SPDLD_TRY(looked);
  for (const Shard& shard : shards_) {
    if (!shard.stamp) return missing();
    bytes_ += shard.stamp->size_bytes;
  }
  return {};
}

// Opens it: who has the index may have all that is in it, so the reader must be allowed to read.
Status TarIndexMaker::look_at(Shard& shard) {
  Access::Opened opened;
  const Denial denial =
      access_.open(AT_FDCWD, shard.path, Access::Links::kFollow, kShardFlags, opened);
  if (denial.err == ENOENT || denial.err == ENOTDIR) return {};
  if (denial.err != 0) return Access::status(denial, "cannot read", shard.path);
  shard.stamp = stamp_of_fd(opened.fd.get());
  if (!shard.stamp) return errno_status(EIO, "cannot look at " + shard.path);
  return {};
}

Status TarIndexMaker::missing() const {
  std::vector<std::string> names;
  std::size_t count = 0;
  for (const Shard& shard : shards_) {
    if (shard.stamp) continue;
    if (++count <= kShownMissing) names.push_back(printable(shard.path));
  }
  if (count > kShownMissing) names.emplace_back("...");
  return Status(Code::kNotFound,
                "source.webdataset.shards: " + std::to_string(count) + " of " +
                    std::to_string(shards_.size()) + " shards are not there where spdld runs: " +
                    listed_names(names) + "; bring them there, or correct the names");
}

std::string TarIndexMaker::take_kept() {
  for (const std::string& name : kept_files_.names(stem_ + "-")) {
    if (!kept_files_.is_whole(name) || !take_file(name)) continue;
    kept_files_.touch(name);
    return kept_files_.index_of(name);
  }
  // Also from indexes of other names for some of the shards.
  for (const std::string& name : kept_files_.names(query_stem(query_))) {
    const auto unread = [](const Shard& shard) { return !shard.index; };
    if (std::none_of(shards_.begin(), shards_.end(), unread)) break;
    if (IndexFiles::is_part(name) || !name.starts_with(stem_)) take_file(name);
  }
  return {};
}

// Whether it holds just what is wanted, and nothing else.
bool TarIndexMaker::take_file(const std::string& name) {
  Result<KeptShards> loaded = load_shard_indexes(query_.spec(), kept_files_.path(name));
  if (loaded && loaded->query.key() != query_.key()) return false;
  if (!loaded) {
    // Of another index, its own pipeline says it.
    if (loaded.error().code() != Code::kNotFound && name.starts_with(stem_))
      warn(loaded.error().message() + "; it is made anew");
    return false;
  }
  std::vector<ShardIndex>& kept = loaded->shards;
  std::unordered_map<std::string_view, ShardIndex*> by_path;
  for (ShardIndex& index : kept) by_path.emplace(index.path, &index);
  bool all = kept.size() == shards_.size();
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    if (shard.index) continue;
    const auto found = by_path.find(shard.path);
    const bool good = found != by_path.end() && found->second->settled &&
                      is_as_indexed(found->second->stamp, *shard.stamp);
    all = all && good && found->second == &kept[i];
    if (!good) continue;
    ShardIndex& index = *found->second;
    by_path.erase(found);  // which looks up the path that moves away
    shard.index = std::move(index);
    shard.index->stamp = *shard.stamp;
  }
  return all;
}

Status TarIndexMaker::count(const ShardIndex& index) {
  if (options_.memory == nullptr) return {};
  const std::uint64_t bytes = index.memory_bytes();
  return options_.memory->cover(counted_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes)
      .with_context("the index of the shards");
}

Status TarIndexMaker::read_shards() {
  std::vector<std::size_t> unread;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (!shards_[i].index) {
      unread.push_back(i);
      continue;
    }
    SPDLD_TRY(count(*shards_[i].index));
    meter_.samples += shards_[i].index->samples();
    meter_.bytes += shards_[i].stamp->size_bytes;
    ++shards_kept_;
    ++shards_done_;
  }
  return run_in_order({.count = unread.size(),
                       .threads = options_.threads,
                       .stop = options_.stop,
                       .task =
                           [this, &unread](std::size_t number, const auto& given_up) {
                             return read_shard(unread[number], given_up);
                           },
                       .progress = [this] { report(); }});
}

Status TarIndexMaker::read_shard(std::size_t number, const std::function<bool()>& given_up) {
  const Clock::time_point begin = Clock::now();
  Shard& shard = shards_[number];
  SPDLD_ASSIGN(const Access::Opened opened, access_.open(shard.path, kShardFlags, "cannot read"));
  const int fd = opened.fd.get();
  const std::optional<ItemStamp> stamp = stamp_of_fd(fd);
  if (!stamp) return errno_status(EIO, "cannot look at " + shard.path);
  // Whatever changes from now on shows in the stamp, if that is old enough.
  const std::int64_t begin_ns = options_.now_ns ? options_.now_ns() : wall_clock_ns();
  OpenFileBytes file(fd, shard.path, stamp->size_bytes);
  std::vector<std::string> warnings;
  Result<ShardIndex> index = scan_shard(file, query_,
                                        {.meter = &meter_,
                                         .max_samples = options_.max_samples,
                                         .stopped = given_up,
                                         .warnings = &warnings});
  // What was read may be a part of each state, whether that failed or not.
  if (stamp_of_fd(fd) != stamp && !given_up())
    return Status(Code::kUnavailable,
                  shard.path + " changed while it was read; try again when it is complete");
  if (!index) return index.error();
  SPDLD_TRY(count(*index));
  index->stamp = *stamp;
  index->settled = is_settled(*stamp, begin_ns);
  shard.index = std::move(*index);
  for (std::string& warning : warnings) warn(std::move(warning));
  shards_done_.fetch_add(1, std::memory_order_relaxed);
  if (kept_files_.keeps()) keep_part(unkept_.add(number, Clock::now() - begin));
  return {};
}

void TarIndexMaker::keep_part(const std::vector<std::size_t>& numbers) {
  if (numbers.empty()) return;
  std::vector<const ShardIndex*> indexes;
  std::string paths;
  for (const std::size_t number : numbers) {
    indexes.push_back(&*shards_[number].index);
    paths += shards_[number].path + '\n';
  }
  const std::string name = IndexFiles::part(stem_ + "-" + short_digest_text(paths));
  const Status saved =
      write_whole_file(kept_files_.path(name), shard_indexes_text(indexes, query_));
  if (saved.ok()) return;
  {
    MutexLock lock(mutex_);
    if (std::exchange(keeping_failed_, true)) return;
  }
  warn("what is done of an index was not kept, and would be made again after a restart: " +
       saved.message());
}

std::string TarIndexMaker::keep_whole(const TarIndex& index, const std::string& text) {
  std::string name = stem_ + "-" + index.data_digest();
  const Status saved = write_whole_file(kept_files_.path(kept_files_.whole(name)), text);
  if (!saved.ok()) {
    warn("the index of " + index.shards()[0].path +
         " and the other shards was not kept, and will be made again after a restart: " +
         saved.message());
    return {};
  }
  for (const std::string& part : kept_files_.names(stem_ + "-")) {
    if (IndexFiles::is_part(part)) kept_files_.remove(part);
  }
  return name;
}

}  // namespace

Result<OpenedTarIndex> open_tar_index(const WebdatasetSpec& spec, const Access& access,
                                      const TarIndexOptions& options) {
  SPDLD_ASSIGN(const IndexQuery query, IndexQuery::make(spec, options.classes));
  return TarIndexMaker(query, access, options).make();
}

Result<std::shared_ptr<const TarIndex>> load_tar_index(const WebdatasetSpec& spec,
                                                       const std::string& directory,
                                                       const std::string& name) {
  const std::string path = directory + "/" + tar_index_file_name(name);
  SPDLD_ASSIGN(KeptShards kept, load_shard_indexes(spec, path));
  if (kept.shards.empty()) return error(Code::kDataLoss, path + " holds no shard");
  SPDLD_ASSIGN(TarIndex index, TarIndex::make(kept.query, std::move(kept.shards)));
  return std::make_shared<const TarIndex>(std::move(index));
}

bool same_tar_data(const std::string& name, const std::string& other) {
  const auto data = [](const std::string& of) {
    const std::size_t query = of.find('-');
    const std::size_t data = of.rfind('-');
    return query == data ? std::string() : of.substr(0, query) + of.substr(data);
  };
  return !data(name).empty() && data(name) == data(other);
}

std::string tar_index_file_name(const std::string& name) { return name + std::string(kTarIndex); }

}  // namespace spdld::source
