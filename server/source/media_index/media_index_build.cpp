// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/media_index_build.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/memory/no_memory.h"
#include "base/mutex.h"
#include "source/bytes/digest_text.h"
#include "source/bytes/ordered_tasks.h"
#include "source/bytes/unkept_tasks.h"
#include "source/file/disk.h"
#include "source/file/index_files.h"

namespace spdld::source {
namespace {

constexpr std::string_view kMediaIndex = ".mediaindex";

std::string files_of(const Source& source) {
  // Without an origin, the parts' keys come from the listing.
  const std::string origin = source.origin();
  return "media " + (origin.empty() ? "listing " + source.listing_digest() : origin);
}

// A prober's errors that the file itself is to blame for.
bool is_files_own(const Status& status) {
  return status.code() != kNoMemory &&
         (status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument ||
          status.code() == Code::kResourceExhausted);
}

// Makes one index. Its tasks share it; what each writes is its own file's.
class MediaIndexMaker {
 public:
  MediaIndexMaker(const Source& source, std::size_t part, const MediaProber& prober,
                  const MediaIndexOptions& options)
      : source_(source),
        part_(part),
        prober_(prober),
        options_(options),
        what_(files_of(source) + " by " + prober.version()),
        stem_(short_digest_text(files_of(source)) + "-"),
        kept_files_(options.directory, kMediaIndex),
        unkept_(options.keep_each),
        codecs_(std::make_shared<CodecPool>()) {}

  Result<OpenedMediaIndex> make();

 private:
  struct File {
    std::uint64_t item = 0;  // that has it
    MediaEntry entry;
  };
  using Clock = std::chrono::steady_clock;

  void warn(std::string text) SPDLD_EXCLUDES(mutex_);
  void report() const;

  Status find_files();
  Status count(std::uint64_t bytes);
  void take_kept();
  Status probe(std::size_t number) SPDLD_EXCLUDES(mutex_);
  Result<MediaEntry> look_at(const File& file, bool& taken);
  // Keeps the entries of these files; of none, does nothing.
  void keep_part(const std::vector<std::size_t>& numbers) SPDLD_EXCLUDES(mutex_);
  // Its name; empty: it could not be kept.
  std::string keep_whole(const MediaIndex& index) SPDLD_EXCLUDES(mutex_);
  void remove_parts(const MediaIndex& index) SPDLD_EXCLUDES(mutex_);

  const Source& source_;
  const std::size_t part_;
  const MediaProber& prober_;
  const MediaIndexOptions& options_;
  const std::string what_;
  const std::string stem_;  // of file names
  const IndexFiles kept_files_;
  UnkeptTasks unkept_;  // those that were probed
  const std::shared_ptr<CodecPool> codecs_;
  std::vector<File> files_;  // each changed by one task at a time
  std::unordered_map<std::uint64_t, MediaEntry> kept_;
  std::set<std::string> whole_;  // names of the indexes that these are from
  // The names of the parts that these are from, with the keys of the files that each has; of
  // damaged ones: none.
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> parts_;
  // Relaxed: for progress.
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<std::uint64_t> taken_ = 0;
  std::atomic<std::uint64_t> broken_ = 0;
  std::atomic<std::uint64_t> counted_bytes_ = 0;  // relaxed: a sum

  Mutex mutex_;
  std::vector<std::string> written_ SPDLD_GUARDED_BY(mutex_);  // names of its own parts
  bool keeping_failed_ SPDLD_GUARDED_BY(mutex_) = false;
};

void MediaIndexMaker::warn(std::string text) {
  if (options_.warnings == nullptr) return;
  MutexLock lock(mutex_);
  options_.warnings->push_back(std::move(text));
}

void MediaIndexMaker::report() const {
  if (!options_.progress) return;
  options_.progress({.files = files_.size(),
                     .done = done_.load(std::memory_order_relaxed),
                     .kept = taken_.load(std::memory_order_relaxed),
                     .broken = broken_.load(std::memory_order_relaxed)});
}

Result<OpenedMediaIndex> MediaIndexMaker::make() {
  SPDLD_TRY(find_files());
  if (kept_files_.keeps()) take_kept();
  const Status probed =
      run_in_order({.count = files_.size(),
                    .threads = options_.threads,
                    .stop = options_.stop,
                    .task = [this](std::size_t number, const auto&) { return probe(number); },
                    .progress = [this] { report(); }});
  if (!probed.ok()) {
    keep_part(unkept_.take());
    if (probed.code() != Code::kCancelled) return tl::unexpected(probed);
    return error(Code::kCancelled, "the index of the media files was stopped");
  }
  kept_ = {};
  std::vector<MediaEntry> entries;
  entries.reserve(files_.size());
  for (File& file : files_) entries.push_back(std::move(file.entry));
  files_ = {};
  OpenedMediaIndex opened{.index = std::make_shared<const MediaIndex>(std::move(entries), codecs_),
                          .name = {}};
  if (kept_files_.keeps()) opened.name = keep_whole(*opened.index);
  return opened;
}

// The index takes so much more.
Status MediaIndexMaker::count(std::uint64_t bytes) {
  if (options_.memory == nullptr) return {};
  return options_.memory->cover(counted_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

// Items may share a part.
Status MediaIndexMaker::find_files() {
  SPDLD_TRY(count(source_.size() * sizeof(File)));
  files_.reserve(source_.size());
  for (std::uint64_t item = 0; item < source_.size(); ++item) {
    if (!source_.has_part(item, part_)) continue;
    File& file = files_.emplace_back();
    file.item = item;
    file.entry.key = source_.part_key(item, part_);
  }
  const auto before = [](const File& a, const File& b) {
    return a.entry.key != b.entry.key ? a.entry.key < b.entry.key : a.item < b.item;
  };
  const auto same = [](const File& a, const File& b) { return a.entry.key == b.entry.key; };
  std::sort(files_.begin(), files_.end(), before);
  files_.erase(std::unique(files_.begin(), files_.end(), same), files_.end());
  // They are read as they are listed, so that the first error is that of the first item.
  std::sort(files_.begin(), files_.end(),
            [](const File& a, const File& b) { return a.item < b.item; });
  return {};
}

void MediaIndexMaker::take_kept() {
  for (const std::string& name : kept_files_.names(stem_)) {
    Result<std::vector<MediaEntry>> entries =
        load_media_entries(kept_files_.path(name), &what_, *codecs_);
    if (!entries) {
      const Code code = entries.error().code();
      // An index by another version of the prober is of no use, and not damaged.
      if (code != Code::kNotFound && code != Code::kFailedPrecondition)
        warn(entries.error().message() + "; it is made anew");
      if (code == Code::kDataLoss && IndexFiles::is_part(name))
        parts_.emplace_back(name, std::vector<std::uint64_t>());
      continue;
    }
    if (kept_files_.is_whole(name)) {
      whole_.insert(kept_files_.index_of(name));
    } else {
      std::vector<std::uint64_t> keys;
      for (const MediaEntry& entry : *entries) keys.push_back(entry.key);
      parts_.emplace_back(name, std::move(keys));
    }
    for (MediaEntry& entry : *entries) {
      if (entry.settled) kept_.try_emplace(entry.key, std::move(entry));
    }
  }
}

Status MediaIndexMaker::probe(std::size_t number) {
  const Clock::time_point begin = Clock::now();
  File& file = files_[number];
  bool taken = false;
  SPDLD_ASSIGN(file.entry, look_at(file, taken));
  SPDLD_TRY(count(file.entry.text.size()));
  if (file.entry.code != Code::kOk) broken_.fetch_add(1, std::memory_order_relaxed);
  if (taken) taken_.fetch_add(1, std::memory_order_relaxed);
  done_.fetch_add(1, std::memory_order_relaxed);
  if (kept_files_.keeps() && !taken && file.entry.settled)
    keep_part(unkept_.add(number, Clock::now() - begin));
  return {};
}

// `taken`: what was kept is good.
Result<MediaEntry> MediaIndexMaker::look_at(const File& file, bool& taken) {
  MediaEntry entry{.key = file.entry.key, .stamp = {}};
  Result<std::unique_ptr<PartBytes>> opened = source_.open_part(file.item, part_);
  if (!opened) {
    // A file that something names and that is not there is no more use than a damaged one.
    if (opened.error().code() != Code::kDataLoss) return tl::unexpected(std::move(opened).error());
    entry.code = Code::kDataLoss;
    entry.set_text(opened.error().message());
    return entry;
  }
  PartBytes& part = **opened;
  const std::optional<ItemStamp> stamp = part.stamp();
  if (!stamp) return error(Code::kUnavailable, "cannot look at " + part.path());
  if (const auto kept = kept_.find(entry.key);
      kept != kept_.end() && is_as_indexed(*stamp, kept->second.stamp)) {
    taken = true;
    entry = kept->second;
    entry.stamp = *stamp;
    return entry;
  }
  // Whatever changes from now on shows in the stamp, if that is old enough.
  const std::int64_t begin_ns = options_.now_ns ? options_.now_ns() : wall_clock_ns();
  const Result<MediaFile> media = prober_.probe(part, options_.stop);
  // The bytes that were read may be of both states, whether probing failed or not.
  if (part.stamp() != stamp)
    return error(Code::kUnavailable,
                 part.path() + " changed while it was read; try again when it is complete");
  Result<std::string> text =
      media ? media_record_text(*media, *codecs_) : tl::unexpected<Status>(media.error());
  if (!text && !is_files_own(text.error())) return tl::unexpected(std::move(text).error());
  entry.stamp = *stamp;
  entry.settled = is_settled(*stamp, begin_ns);
  if (text) {
    entry.set_text(*std::move(text));
  } else {
    entry.code = text.error().code();
    entry.set_text(media ? part.path() + ": " + text.error().message() : text.error().message());
  }
  return entry;
}

void MediaIndexMaker::keep_part(const std::vector<std::size_t>& numbers) {
  if (numbers.empty()) return;
  std::vector<const MediaEntry*> entries;
  std::vector<std::uint64_t> keys;
  for (const std::size_t number : numbers) {
    entries.push_back(&files_[number].entry);
    keys.push_back(entries.back()->key);
  }
  const std::string_view bytes(reinterpret_cast<const char*>(keys.data()),
                               keys.size() * sizeof(std::uint64_t));
  std::string name = IndexFiles::part(stem_ + short_digest_text(bytes));
  const Status saved = save_media_entries(kept_files_.path(name), what_, entries, *codecs_);
  {
    MutexLock lock(mutex_);
    if (saved.ok()) {
      written_.push_back(std::move(name));
      return;
    }
    if (std::exchange(keeping_failed_, true)) return;
  }
  warn("what is done of an index was not kept, and would be made again after a restart: " +
       saved.message());
}

std::string MediaIndexMaker::keep_whole(const MediaIndex& index) {
  std::string name = stem_ + index.digest();
  if (taken_.load(std::memory_order_relaxed) == index.size() && whole_.contains(name)) {
    kept_files_.touch(kept_files_.whole(name));
    remove_parts(index);
    return name;
  }
  std::vector<const MediaEntry*> entries;
  entries.reserve(index.size());
  for (const MediaEntry& entry : index.entries()) entries.push_back(&entry);
  const Status saved =
      save_media_entries(kept_files_.path(kept_files_.whole(name)), what_, entries, index.codecs());
  if (!saved.ok()) {
    warn("the index of the media files was not kept, and will be made again after a restart: " +
         saved.message());
    return {};
  }
  remove_parts(index);
  return name;
}

// A build that goes on with one of these finds its files in the whole index. The parts that other
// builds write meanwhile stay for them.
void MediaIndexMaker::remove_parts(const MediaIndex& index) {
  for (const auto& [part, keys] : parts_) {
    const bool has_all = std::all_of(keys.begin(), keys.end(), [&index](std::uint64_t key) {
      return index.find(key) != nullptr;
    });
    if (has_all) kept_files_.remove(part);
  }
  std::vector<std::string> written;
  {
    MutexLock lock(mutex_);
    written = std::exchange(written_, {});
  }
  for (const std::string& part : written) kept_files_.remove(part);
}

}  // namespace

Result<OpenedMediaIndex> open_media_index(const Source& source, std::size_t part,
                                          const MediaProber& prober,
                                          const MediaIndexOptions& options) {
  return MediaIndexMaker(source, part, prober, options).make();
}

Result<std::shared_ptr<const MediaIndex>> load_media_index(const std::string& directory,
                                                           const std::string& name) {
  const std::string path = directory + "/" + media_index_file_name(name);
  auto codecs = std::make_shared<CodecPool>();
  SPDLD_ASSIGN(std::vector<MediaEntry> entries, load_media_entries(path, nullptr, *codecs));
  auto index = std::make_shared<const MediaIndex>(std::move(entries), std::move(codecs));
  if (!name.ends_with("-" + index->digest()))
    return error(Code::kDataLoss, path + " holds another index than its name says");
  return index;
}

std::string media_index_file_name(const std::string& name) {
  return name + std::string(kMediaIndex);
}

}  // namespace spdld::source
