// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_caches.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/log.h"
#include "base/text/counted.h"
#include "delivery/memory_probe.h"
#include "engine/cache/sample_cache_disk.h"
#include "engine/cache/sample_cache_memory.h"

namespace spdld::engine {
namespace {

using delivery::format_bytes;
using Form = spec::CacheSpec::Form;
using Where = spec::CacheSpec::Where;

constexpr std::uint64_t kSmallestSlab = std::uint64_t{1} << 20;
constexpr std::uint64_t kLargestSlab = std::uint64_t{64} << 20;
constexpr std::size_t kMaxUnused = 50;

// The directory itself or, before it is made, the nearest one above it.
std::string existing(const std::string& dir) {
  std::filesystem::path path = dir;
  std::error_code failed;
  while (!std::filesystem::exists(path, failed) && path.has_relative_path())
    path = path.parent_path();
  return path.string();
}

std::optional<std::uint64_t> device_of(const std::string& dir) {
  struct stat info {};
  if (::stat(existing(dir).c_str(), &info) != 0) return std::nullopt;
  return info.st_dev;
}

std::uint64_t free_in(const std::string& dir) {
  struct statvfs info {};
  if (::statvfs(existing(dir).c_str(), &info) != 0) return 0;
  return std::uint64_t{info.f_bavail} * std::uint64_t{info.f_frsize};
}

// An eighth of what is free is left to others.
std::uint64_t free_memory() {
  const std::uint64_t available = delivery::memory_room().available_bytes;
  return available - available / 8;
}

Status at(const Plan& plan, Code code, const std::string& message) {
  return Status(code, plan.spec.cache->location.text() + ": cache: " + message);
}

// All that what is kept depends on, but the part itself: two plans with the same key keep the same
// of parts with the same Source::part_key().
std::string prefix_key(const Plan& plan, const source::Source& source) {
  const spec::CacheSpec& cache = *plan.spec.cache;
  std::string key =
      fmt::format("{}\n{}\n{}", source.origin(), name_of(cache.where), name_of(cache.form));
  return cache.form == Form::kEncoded ? key : key + "\n" + plan.image->decode_key;
}

// By anybody beside the caches themselves.
bool is_held(const std::shared_ptr<SampleCache>& cache) { return cache.use_count() > 1; }

}  // namespace

SampleCaches::SampleCaches(SampleCachesOptions options)
    : options_([&options] {
        if (!options.free_memory) options.free_memory = free_memory;
        if (!options.free_disk) options.free_disk = free_in;
        return std::move(options);
      }()),
      ram_bytes_(options_.ram_bytes) {}

void SampleCaches::set_ram(std::uint64_t bytes) {
  std::vector<Prefix> evicted;  // goes after the lock
  MutexLock lock(mutex_);
  ram_bytes_.store(bytes, std::memory_order_relaxed);
  evict(Where::kRam, bytes, "as cache.ram was lowered", evicted);
}

std::uint64_t SampleCaches::bound(Where where) const {
  return where == Where::kDisk ? options_.disk_bytes : ram();
}

Status SampleCaches::check(const Plan& plan) const {
  if (!plan.spec.cache) return {};
  const spec::CacheSpec& cache = *plan.spec.cache;
  const std::uint64_t most = bound(cache.where);
  if (cache.where == Where::kDisk && most == 0)
    return at(plan, Code::kFailedPrecondition,
              "this daemon keeps nothing on a disk: set cache.disk in its configuration, or write "
              "'where: ram'");
  if (cache.size_bytes > most)
    return at(plan, Code::kResourceExhausted,
              fmt::format("it asks for {} of {}, more than the {} that all caches together may "
                          "take: lower 'size', or raise cache.{} in the daemon's configuration",
                          format_bytes(cache.size_bytes), name_of(cache.where), format_bytes(most),
                          name_of(cache.where)));
  return {};
}

CacheEstimate SampleCaches::estimate(const Plan& plan, source::Source& source) const {
  const spec::CacheSpec& cache = *plan.spec.cache;
  const int pixel_bytes = plan.image != nullptr ? plan.image->pixel_bytes() : 0;
  return estimate_cache(cache, pixel_bytes, source.size(),
                        probe_items(plan, source, options_.has_seek_indexes),
                        cache.where == Where::kDisk ? device_of(options_.dir) : std::nullopt);
}

Status SampleCaches::make_room(const Plan& plan, std::uint64_t bytes,
                               std::vector<Prefix>& evicted) {
  const spec::CacheSpec& cache = *plan.spec.cache;
  const std::uint64_t most = bound(cache.where);
  std::uint64_t held = 0;
  std::uint64_t used = 0;
  std::uint64_t others = 0;
  for (const Prefix& prefix : prefixes_) {
    if (prefix.cache->where() != cache.where) continue;
    if (!is_held(prefix.cache)) continue;
    held += prefix.cache->limit_bytes();
    if (!prefix.cache->is_used()) continue;
    used += prefix.cache->limit_bytes();
    ++others;
  }
  if (used + bytes > most)
    return at(
        plan, Code::kResourceExhausted,
        fmt::format("it needs {} of {}, and {} of the {} for all caches are in use ({}, which "
                    "'spdlctl status' shows): lower 'size', end the jobs that use those, or "
                    "raise cache.{} in the daemon's configuration",
                    format_bytes(bytes), name_of(cache.where), format_bytes(used),
                    format_bytes(most), counted(others, "cache"), name_of(cache.where)));
  if (held + bytes > most)
    return at(plan, Code::kUnavailable,
              fmt::format("it needs {} of {}, which jobs that have ended are letting go of: try "
                          "again in a moment",
                          format_bytes(bytes), name_of(cache.where)));
  evict(cache.where, most - bytes, "for the cache of pipeline '" + plan.spec.name + "'", evicted);
  return {};
}

void SampleCaches::evict(Where where, std::uint64_t most, const std::string& why,
                         std::vector<Prefix>& evicted) {
  std::uint64_t taken = 0;
  for (const Prefix& prefix : prefixes_)
    taken += prefix.cache->where() == where ? prefix.cache->limit_bytes() : 0;
  while (taken > most) {
    auto oldest = prefixes_.end();
    for (auto prefix = prefixes_.begin(); prefix != prefixes_.end(); ++prefix) {
      if (prefix->cache->where() != where || is_held(prefix->cache)) continue;
      if (oldest == prefixes_.end() || prefix->last_used < oldest->last_used) oldest = prefix;
    }
    if (oldest == prefixes_.end()) return;
    taken -= oldest->cache->limit_bytes();
    spdlog::info("cache {}, in {}: let go, with {}, {}", oldest->cache->name(), name_of(where),
                 counted(oldest->cache->snapshot().items, "item"), why);
    evicted.push_back(std::move(*oldest));
    prefixes_.erase(oldest);
  }
}

Result<std::unique_ptr<CacheLog>> SampleCaches::make_log(const Plan& plan) const {
  const spec::CacheSpec& cache = *plan.spec.cache;
  if (cache.where == Where::kRam)
    return std::make_unique<MemoryLog>(MemoryLog::Options{
        .slab_bytes = std::clamp(cache.size_bytes / 8, kSmallestSlab, kLargestSlab),
        .free_bytes = options_.free_memory});
  auto file = open_unnamed_file(options_.dir);
  if (!file) return tl::unexpected<Status>(at(plan, file.error().code(), file.error().message()));
  return std::make_unique<DiskLog>(std::move(file).value(), options_.io);
}

void SampleCaches::note(const Plan& plan, const CacheEstimate& estimate) {
  MutexLock lock(mutex_);
  if (estimate.used) {
    unused_.erase(plan.spec.name);
  } else if (unused_.size() < kMaxUnused || unused_.contains(plan.spec.name)) {
    unused_[plan.spec.name] = estimate.why_not;
  }
}

Result<std::shared_ptr<SampleCache>> SampleCaches::open(const Plan& plan, source::Source& source) {
  if (!plan.spec.cache) return std::shared_ptr<SampleCache>();
  SPDLD_TRY(check(plan));
  return open(plan, source, estimate(plan, source));
}

Result<std::shared_ptr<SampleCache>> SampleCaches::open(const Plan& plan,
                                                        const source::Source& source,
                                                        const CacheEstimate& estimate) {
  if (!plan.spec.cache) return std::shared_ptr<SampleCache>();
  const spec::CacheSpec& cache = *plan.spec.cache;
  SPDLD_TRY(check(plan));
  const std::string origin = source.origin();
  if (origin.empty())
    return tl::unexpected<Status>(at(plan, Code::kFailedPrecondition,
                                     "this kind of source cannot tell whether an item has changed, "
                                     "so nothing of it can be kept: leave 'cache' out"));
  note(plan, estimate);
  if (!estimate.used) return std::shared_ptr<SampleCache>();

  const std::string key = prefix_key(plan, source);
  std::vector<Prefix> evicted;  // goes after the lock: giving memory back takes a while
  MutexLock lock(mutex_);
  const auto known = std::find_if(prefixes_.begin(), prefixes_.end(),
                                  [&](const Prefix& prefix) { return prefix.key == key; });
  std::shared_ptr<SampleCache> shared = known == prefixes_.end() ? nullptr : known->cache;
  const std::uint64_t has = shared == nullptr ? 0 : shared->limit_bytes();
  const std::uint64_t more = cache.size_bytes - std::min(cache.size_bytes, has);
  if (more > 0) {
    const std::uint64_t left =
        cache.where == Where::kDisk ? options_.free_disk(options_.dir) : more;
    if (more > left)
      return tl::unexpected<Status>(
          at(plan, Code::kResourceExhausted,
             fmt::format("it needs {} of disk, and {} has {} left: lower 'size', make room there, "
                         "or set cache.dir in the daemon's configuration",
                         format_bytes(more), options_.dir, format_bytes(left))));
    SPDLD_TRY(make_room(plan, more, evicted));
  }
  if (shared != nullptr) {
    shared->raise_limit(cache.size_bytes);
  } else {
    SPDLD_ASSIGN(std::unique_ptr<CacheLog> log, make_log(plan));
    shared = std::make_shared<SampleCache>(
        SampleCache::Options{.name = fmt::format("{} {}", name_of(cache.form), origin),
                             .origin = origin,
                             .form = cache.form,
                             .where = cache.where,
                             .limit_bytes = cache.size_bytes},
        std::move(log));
    prefixes_.push_back({.key = key, .cache = shared});
  }
  if (cache.form != Form::kEncoded && estimate.probed > 0)
    shared->set_saved_share(estimate.saved_share());
  const auto prefix = std::find_if(prefixes_.begin(), prefixes_.end(),
                                   [&](const Prefix& each) { return each.key == key; });
  prefix->last_used = ++uses_;
  return shared;
}

std::vector<SampleCache::Snapshot> SampleCaches::snapshots() const {
  std::vector<SampleCache::Snapshot> result;
  MutexLock lock(mutex_);
  for (const Prefix& prefix : prefixes_) result.push_back(prefix.cache->snapshot());
  return result;
}

std::vector<std::string> SampleCaches::unused(const std::set<std::string>& pipelines) const {
  std::vector<std::string> result;
  MutexLock lock(mutex_);
  for (const auto& [name, why] : unused_) {
    if (pipelines.contains(name))
      result.push_back("pipeline '" + name + "': its cache is not used: " + why);
  }
  return result;
}

}  // namespace spdld::engine
