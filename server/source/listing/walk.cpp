// SPDX-License-Identifier: Apache-2.0
#include "source/listing/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "posix/unique_fd.h"
#include "source/bytes/path_error.h"
#include "source/file/disk.h"
#include "source/listing/listed_directories.h"

namespace spdld::source {
namespace {

constexpr int kMaxDepth = 256;
constexpr std::size_t kMaxWarnings = 20;
constexpr std::uint64_t kStopEach = 1024;  // entries between two looks at the stop token
constexpr auto kWalkProgressPause = std::chrono::milliseconds(100);

constexpr int kListFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

struct Directory {
  std::string path;  // relative; empty for the root
  const Directory* parent = nullptr;
  int depth = 0;
  Glob::State state;
  dev_t device = 0;
  ino_t inode = 0;
  DirectoryStamp stamp;
  bool remote = false;
  bool left_out = false;
  std::string files;  // names that match, sorted, each with a zero byte behind it
  std::vector<std::unique_ptr<Directory>> children;

  std::string below(std::string_view name) const {
    return path.empty() ? std::string(name) : path + "/" + std::string(name);
  }
  std::string_view name() const { return std::string_view(path).substr(path.rfind('/') + 1); }
};

// Whether the directory `a`, with the slash that follows it in a path, comes before `b`, behind
// which stands `b_end`: a slash too, or zero for a file. That is the order of whole paths.
bool directory_before(std::string_view a, std::string_view b, char b_end) {
  const std::size_t both = std::min(a.size(), b.size());
  const int common = std::memcmp(a.data(), b.data(), both);
  if (common != 0) return common < 0;
  return static_cast<unsigned char>(both < a.size() ? a[both] : '/') <
         static_cast<unsigned char>(both < b.size() ? b[both] : b_end);
}

// The threads that read directories, and what they have found. Made for one walk.
class Walker {
 public:
  Walker(int root_fd, const Glob& glob, const Access& access, const WalkOptions& options)
      : root_fd_(root_fd), glob_(glob), access_(access), options_(options) {}

  Result<Walk> run();

 private:
  void work() SPDLD_EXCLUDES(mutex_);
  Status read(Directory& directory) SPDLD_EXCLUDES(mutex_);
  // None: the directory is left out.
  Result<UniqueFd> open(Directory& directory) SPDLD_EXCLUDES(mutex_);
  Status entry(Directory& directory, int fd, const dirent& found, std::vector<std::string>& files)
      SPDLD_EXCLUDES(mutex_);
  Status linked(Directory& directory, int fd, const std::string& name, struct stat& info) const;
  bool is_excluded(const Directory& directory, const std::string& name) const;
  bool is_excluded_whole(const Directory& directory, const std::string& name) const;
  bool is_above(const Directory& directory, const struct stat& info) const;
  Status grow(std::uint64_t bytes);
  void warn(std::string warning) SPDLD_EXCLUDES(mutex_);
  void fail(Status status) SPDLD_EXCLUDES(mutex_);
  std::string full(const std::string& path) const {
    return path.empty() ? options_.root : (options_.root == "/" ? "" : options_.root) + "/" + path;
  }
  static void emit(const Directory& directory, ListingBuilder& builder,
                   std::vector<DirectoryStamp>& stamps, bool& remote);

  const int root_fd_;
  const Glob& glob_;
  const Access& access_;
  const WalkOptions& options_;
  std::atomic<std::uint64_t> seen_ = 0;         // relaxed: for progress
  std::atomic<std::uint64_t> matched_ = 0;      // relaxed: for the limit
  std::atomic<std::uint64_t> directories_ = 0;  // relaxed: for the limit
  std::atomic<std::uint64_t> bytes_ = 0;        // relaxed: what has been found takes so much
  std::atomic<bool> stop_ = false;              // relaxed: a late look costs some entries

  Mutex mutex_;
  CondVar changed_;  // there is more to read, or nothing
  CondVar done_;
  std::deque<Directory*> waiting_ SPDLD_GUARDED_BY(mutex_);
  std::size_t unread_ SPDLD_GUARDED_BY(mutex_) = 0;  // waiting or being read
  Status failure_ SPDLD_GUARDED_BY(mutex_);
  std::string a_file_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::string> warnings_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::string> top_directories_ SPDLD_GUARDED_BY(mutex_);
};

Result<Walk> Walker::run() {
  Walk walk;
  const std::int64_t listed_at = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count();
  Directory root;
  root.state = glob_.start();
  {
    MutexLock lock(mutex_);
    waiting_.push_back(&root);
    unread_ = 1;
  }
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < std::max(1, options_.threads); ++i) {
      threads.emplace_back([this] { work(); });
    }
    for (bool done = false; !done;) {
      {
        MutexLock lock(mutex_);
        if (unread_ > 0) done_.wait_for(mutex_, kWalkProgressPause);
        done = unread_ == 0;
      }
      if (options_.stop.stop_requested()) stop_.store(true, std::memory_order_relaxed);
      if (options_.progress) options_.progress(seen_.load(std::memory_order_relaxed));
    }
  }
  if (options_.stop.stop_requested()) {
    return error(Code::kCancelled, "the listing of " + options_.root + " was stopped");
  }
  MutexLock lock(mutex_);
  if (!failure_.ok()) return tl::unexpected(failure_);
  ListingBuilder builder;
  std::vector<DirectoryStamp> stamps;
  bool remote = false;
  emit(root, builder, stamps, remote);
  walk.listing = std::move(builder).finish();
  walk.listing.stamps = std::move(stamps);
  walk.listing.remote = remote;
  walk.listing.listed_at_ns = listed_at;
  std::sort(top_directories_.begin(), top_directories_.end());
  walk.listing.top_directories = std::move(top_directories_);
  walk.files_seen = seen_.load(std::memory_order_relaxed);
  walk.a_file = std::move(a_file_);
  walk.warnings = std::move(warnings_);
  return walk;
}

void Walker::work() {
  ::pthread_setname_np(::pthread_self(), "spdld-walk");
  MutexLock lock(mutex_);
  for (;;) {
    while (waiting_.empty() && unread_ > 0) changed_.wait(mutex_);
    if (unread_ == 0) return;
    // The latest first: few directories wait at a time, as in a walk by recursion.
    Directory& directory = *waiting_.back();
    waiting_.pop_back();
    mutex_.unlock();
    if (!stop_.load(std::memory_order_relaxed)) {
      if (Status status = read(directory); !status.ok()) fail(std::move(status));
    }
    mutex_.lock();
    for (const auto& child : directory.children) waiting_.push_back(child.get());
    unread_ += directory.children.size();
    --unread_;
    // This thread goes on with one of the children itself.
    for (std::size_t i = 1; i < directory.children.size(); ++i) changed_.notify_one();
    if (unread_ == 0) {
      changed_.notify_all();
      done_.notify_all();
    }
  }
}

Status Walker::grow(std::uint64_t bytes) {
  constexpr std::uint64_t kEach = std::uint64_t{64} << 10;
  const std::uint64_t before = bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (options_.memory == nullptr || before / kEach == (before + bytes) / kEach) return {};
  return options_.memory->cover(before + bytes).with_context(options_.root);
}

void Walker::warn(std::string warning) {
  MutexLock lock(mutex_);
  if (warnings_.size() < kMaxWarnings) warnings_.push_back(std::move(warning));
}

void Walker::fail(Status status) {
  stop_.store(true, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = std::move(status);
}

Result<UniqueFd> Walker::open(Directory& directory) {
  Access::Opened opened;
  Denial denial = access_.open(root_fd_, directory.path.empty() ? "." : directory.path,
                               options_.links, kListFlags, opened);
  if (denial.reserved && directory.parent != nullptr) {
    directory.left_out = true;
    warn(full(directory.path) + " was left out: " + denial.why);
    return UniqueFd();
  }
  if (denial.err != 0)
    return tl::unexpected(Access::status(denial, "cannot list", full(directory.path)));
  const struct stat& info = opened.info;
  directory.device = info.st_dev;
  directory.inode = info.st_ino;
  directory.stamp = directory_stamp(directory.path, info);
  directory.remote = directory.parent != nullptr && directory.parent->device == info.st_dev
                         ? directory.parent->remote
                         : !is_local(opened.fd.get());
  return std::move(opened.fd);
}

Status Walker::read(Directory& directory) {
  if (directory.depth > kMaxDepth) {
    return Status(Code::kResourceExhausted, full(directory.path) + " lies more than " +
                                                std::to_string(kMaxDepth) +
                                                " directories deep; narrow the pattern");
  }
  SPDLD_ASSIGN(UniqueFd fd, open(directory));
  if (!fd) return {};
  const std::unique_ptr<DIR, DirCloser> dir(::fdopendir(fd.get()));
  if (!dir) return path_error(errno, "cannot list", full(directory.path));
  const int dir_fd = fd.release();  // the stream's now

  std::vector<std::string> files;
  for (std::uint64_t count = 1;; ++count) {
    errno = 0;
    const dirent* found = ::readdir(dir.get());
    if (found == nullptr) {
      if (errno != 0) return path_error(errno, "cannot list", full(directory.path));
      break;
    }
    SPDLD_TRY(entry(directory, dir_fd, *found, files));
    if (count % kStopEach == 0 &&
        (stop_.load(std::memory_order_relaxed) || options_.stop.stop_requested())) {
      return {};
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::string& name : files) directory.files.append(name.c_str(), name.size() + 1);
  std::sort(directory.children.begin(), directory.children.end(), [](const auto& a, const auto& b) {
    return directory_before(a->name(), b->name(), '/');
  });
  return {};
}

Status Walker::entry(Directory& directory, int fd, const dirent& found,
                     std::vector<std::string>& files) {
  const std::string name = found.d_name;
  if (name == "." || name == "..") return {};
  unsigned char type = found.d_type;
  struct stat info {};
  bool is_link = type == DT_LNK;
  if (type == DT_UNKNOWN) {
    if (::fstatat(fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return path_error(errno, "cannot list", full(directory.below(name)));
    }
    type = static_cast<unsigned char>(IFTODT(info.st_mode));
    is_link = type == DT_LNK;
  }
  if (is_link) {
    if (options_.links == Access::Links::kRefuse) return {};
    SPDLD_TRY(linked(directory, fd, name, info));
    type = static_cast<unsigned char>(IFTODT(info.st_mode));
  }

  if (type == DT_REG) {
    seen_.fetch_add(1, std::memory_order_relaxed);
    if (!glob_.accepts(directory.state, name) || is_excluded(directory, name)) {
      MutexLock lock(mutex_);
      if (a_file_.empty()) a_file_ = directory.below(name);
      return {};
    }
    if (directory.below(name).size() > Listing::kMaxUri) {
      return Status(Code::kResourceExhausted, "a path below " + full(directory.path) +
                                                  " has more than " +
                                                  std::to_string(Listing::kMaxUri) + " bytes");
    }
    if (matched_.fetch_add(1, std::memory_order_relaxed) >= options_.max_items) {
      return Status(Code::kResourceExhausted,
                    options_.root + " holds more than the " + std::to_string(options_.max_items) +
                        " files that a source may have; narrow the pattern");
    }
    SPDLD_TRY(grow(name.size() + 1));
    files.push_back(name);
    return {};
  }
  if (type != DT_DIR) return {};
  SPDLD_TRY(grow(sizeof(Directory) + 2 * name.size()));
  if (directory.parent == nullptr && name[0] != '.') {
    MutexLock lock(mutex_);
    top_directories_.push_back(name);
  }
  Glob::State state = glob_.enter(directory.state, name);
  if (state.dead() || is_excluded_whole(directory, name)) return {};
  if (is_link && is_above(directory, info)) {
    warn(full(directory.below(name)) +
         " is a symlink to a directory that it lies in, and was left out");
    return {};
  }
  if (directories_.fetch_add(1, std::memory_order_relaxed) >= options_.max_directories) {
    return Status(
        Code::kResourceExhausted,
        options_.root + " leads through more than the " + std::to_string(options_.max_directories) +
            " directories that a listing may take, each counted as often as symlinks lead "
            "to it; set 'follow_symlinks: false', or narrow the root or the pattern");
  }
  auto child = std::make_unique<Directory>();
  child->path = directory.below(name);
  child->parent = &directory;
  child->depth = directory.depth + 1;
  child->state = std::move(state);
  directory.children.push_back(std::move(child));
  return {};
}

bool Walker::is_excluded(const Directory& directory, const std::string& name) const {
  if (options_.exclude.empty()) return false;
  const std::string path = directory.below(name);
  return std::any_of(options_.exclude.begin(), options_.exclude.end(),
                     [&path](const Glob& glob) { return glob.matches(path); });
}

// Whether nothing below the directory `name` can be an item.
bool Walker::is_excluded_whole(const Directory& directory, const std::string& name) const {
  if (options_.exclude.empty() || glob_.may_match_hidden()) return false;
  const std::string path = directory.below(name);
  return std::any_of(options_.exclude.begin(), options_.exclude.end(),
                     [&path](const Glob& glob) { return glob.covers(path); });
}

// What a symlink leads to. Left as nothing at all (no type) when that does not matter.
Status Walker::linked(Directory& directory, int fd, const std::string& name,
                      struct stat& info) const {
  const Denial denial = access_.look(fd, name, info);
  if (denial.err == 0) return {};
  info = {};
  const bool dangles = denial.err == ENOENT || denial.err == ELOOP || denial.err == ENOTDIR;
  const bool wanted = (glob_.accepts(directory.state, name) && !is_excluded(directory, name)) ||
                      (!dangles && !glob_.enter(directory.state, name).dead() &&
                       !is_excluded_whole(directory, name));
  if (!wanted) return {};
  const std::string path = full(directory.below(name));
  if (!dangles) return Access::status(denial, "cannot follow the symlink", path);
  return Status(Code::kNotFound,
                path +
                    " is a symlink that leads to no file; mend or remove it, or narrow the "
                    "pattern");
}

bool Walker::is_above(const Directory& directory, const struct stat& info) const {
  for (const Directory* above = &directory; above != nullptr; above = above->parent) {
    if (above->inode == info.st_ino && above->device == info.st_dev) return true;
  }
  return false;
}

// Files and directories of one directory, merged: the order of whole paths.
void Walker::emit(const Directory& directory, ListingBuilder& builder,
                  std::vector<DirectoryStamp>& stamps, bool& remote) {
  if (directory.left_out) return;
  stamps.push_back(directory.stamp);
  remote = remote || directory.remote;
  auto child = directory.children.begin();
  for (const char* at = directory.files.data();
       at != directory.files.data() + directory.files.size();) {
    const std::string_view name(at);
    for (; child != directory.children.end() && directory_before((*child)->name(), name, '\0');
         ++child) {
      emit(**child, builder, stamps, remote);
    }
    builder.add(directory.below(name));
    at += name.size() + 1;
  }
  for (; child != directory.children.end(); ++child) emit(**child, builder, stamps, remote);
}

}  // namespace

Result<Walk> walk(int root_fd, const Glob& glob, const Access& access, const WalkOptions& options) {
  return Walker(root_fd, glob, access, options).run();
}

}  // namespace spdld::source
