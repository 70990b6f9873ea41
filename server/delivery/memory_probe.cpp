// SPDX-License-Identifier: Apache-2.0
#include "delivery/memory_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/cgroup.h"

namespace spdld::delivery {
namespace {

constexpr std::uint64_t kUnbounded = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return parse_number(word);  // "max" is no bound
}

// The sum of the values behind these keys in a file of "key value" lines.
std::uint64_t sum_of(const std::string& path, std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  std::uint64_t sum = 0;
  std::string key;
  std::string value;
  while (file >> key >> value) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      sum += parse_number(value).value_or(0);
  }
  return sum;
}

// One version's names of the same files.
struct GroupFiles {
  const char* limit;
  const char* usage;
  std::initializer_list<std::string_view> page_cache;  // in memory.stat
};
const GroupFiles kV1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
const GroupFiles kV2{"memory.max", "memory.current", {"inactive_file", "active_file"}};

void tighten(MemoryRoom& room, std::uint64_t available, std::string bound_by) {
  if (available >= room.available_bytes) return;
  room.available_bytes = available;
  room.bound_by = std::move(bound_by);
}

void for_each_group(const MemoryFiles& files,
                    const std::function<void(const Cgroup&, const GroupFiles&)>& visit) {
  for_each_cgroup({.self = files.self_cgroup, .root = files.cgroup_root}, "memory",
                  [&](const Cgroup& group) { visit(group, group.is_v1 ? kV1 : kV2); });
}

std::optional<std::uint64_t> meminfo_bytes(const std::string& path, std::string_view wanted) {
  std::ifstream meminfo(path);
  std::string line;
  while (std::getline(meminfo, line)) {
    std::istringstream words(line);
    std::string key;
    std::string value;
    if (!(words >> key >> value) || key != wanted) continue;
    const auto kib = parse_number(value);
    if (!kib) return std::nullopt;
    return *kib > kUnbounded / 1024 ? kUnbounded : *kib * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

MemoryRoom memory_room(const MemoryFiles& files) {
  MemoryRoom room{.available_bytes = kUnbounded, .bound_by = "nothing"};
  if (const auto bytes = meminfo_bytes(files.meminfo, "MemAvailable:"))
    tighten(room, *bytes, fmt::format("the machine: {} available", format_bytes(*bytes)));
  for_each_group(files, [&](const Cgroup& group, const GroupFiles& names) {
    const auto limit = read_number(group.directory + names.limit);
    const auto usage = read_number(group.directory + names.usage);
    if (!limit || !usage) return;
    const std::uint64_t cache = sum_of(group.directory + "memory.stat", names.page_cache);
    const std::uint64_t used = *usage - std::min(*usage, cache);
    tighten(room, *limit - std::min(*limit, used),
            fmt::format("cgroup {}: limit {}, in use {}", group.name, format_bytes(*limit),
                        format_bytes(used)));
  });
  return room;
}

std::uint64_t memory_total(const MemoryFiles& files) {
  std::uint64_t total = meminfo_bytes(files.meminfo, "MemTotal:").value_or(0);
  for_each_group(files, [&](const Cgroup& group, const GroupFiles& names) {
    const auto limit = read_number(group.directory + names.limit);
    if (limit && (total == 0 || *limit < total)) total = *limit;
  });
  return total;
}

std::optional<std::uint64_t> own_memory(const MemoryFiles& files) {
  return meminfo_bytes(files.smaps, "Pss:");
}

std::optional<std::uint64_t> OwnMemory::bytes() {
  constexpr std::chrono::seconds kLeast{10};
  constexpr int kTimesAsLong = 50;
  MutexLock lock(mutex_);
  const auto begun = clock_.now();
  if (next_look_ && begun < *next_look_) return bytes_;
  bytes_ = own_memory(files_);
  const auto now = clock_.now();
  next_look_ = now + std::max<std::chrono::nanoseconds>(kLeast, kTimesAsLong * (now - begun));
  return bytes_;
}

ArenaBudget::ArenaBudget(std::uint64_t limit_bytes, MemoryFiles files, UserShare share)
    : limit_bytes_(limit_bytes),
      share_bytes_(share.bytes),
      files_(std::move(files)),
      share_(std::move(share)) {}

void ArenaBudget::set_limit(std::uint64_t limit_bytes, std::uint64_t share_bytes) {
  limit_bytes_.store(limit_bytes, std::memory_order_relaxed);
  share_bytes_.store(share_bytes, std::memory_order_relaxed);
}

std::optional<std::uint64_t> ArenaBudget::share_bytes(uid_t uid) const {
  const bool unbound =
      std::find(share_.unbound.begin(), share_.unbound.end(), uid) != share_.unbound.end();
  if (unbound) return std::nullopt;
  return std::min(limit_bytes(), share_bytes_.load(std::memory_order_relaxed));
}

std::uint64_t ArenaBudget::limit_bytes(uid_t uid) const {
  return share_bytes(uid).value_or(limit_bytes());
}

std::uint64_t ArenaBudget::used_by(uid_t uid) const {
  const auto used = used_by_user_.find(uid);
  return used == used_by_user_.end() ? 0 : used->second;
}

ArenaBudget::Room ArenaBudget::room(std::uint64_t bytes, uid_t uid) const {
  // Its own share first: others who leave would not help.
  const std::uint64_t in_all = limit_bytes();
  const std::uint64_t limit = limit_bytes(uid);
  if (limit < in_all && bytes > limit - std::min(limit, used_by(uid))) return Room::kUserFull;
  return bytes > in_all - std::min(in_all, used_bytes_) ? Room::kFull : Room::kEnough;
}

ArenaBudget::Room ArenaBudget::room_for(std::uint64_t bytes, uid_t uid) const {
  MutexLock lock(mutex_);
  return room(bytes, uid);
}

Result<ArenaBudget::Reservation> ArenaBudget::reserve(std::uint64_t bytes, uid_t uid,
                                                      const std::string& what) {
  const MemoryRoom memory = memory_room(files_);
  MutexLock lock(mutex_);
  const Room found = room(bytes, uid);
  if (found == Room::kUserFull) {
    const std::uint64_t limit = limit_bytes(uid);
    return error(
        Code::kResourceExhausted,
        fmt::format("{} needs {}, but of the {} that one user's arenas may take (limits.arena; the "
                    "arena budget is {}), user {} has {} in use; processes that live on after "
                    "their session count, too: end what is not needed, lower batch.size or "
                    "delivery.prefetch, or have limits.arena raised",
                    what, format_bytes(bytes), format_bytes(limit), format_bytes(limit_bytes()),
                    uid, format_bytes(used_by(uid))));
  }
  if (found == Room::kFull) {
    const std::uint64_t limit = limit_bytes();
    return error(
        Code::kResourceExhausted,
        fmt::format("{} needs {}, but the arena budget of {} has {} left ({} in use); raise "
                    "arena.budget, or lower batch.size or delivery.prefetch",
                    what, format_bytes(bytes), format_bytes(limit),
                    format_bytes(limit - std::min(limit, used_bytes_)), format_bytes(used_bytes_)));
  }
  if (bytes > memory.available_bytes) {
    return error(Code::kResourceExhausted,
                 fmt::format("{} needs {}, but only {} are free ({}); raise the memory limit, or "
                             "lower batch.size or delivery.prefetch",
                             what, format_bytes(bytes), format_bytes(memory.available_bytes),
                             memory.bound_by));
  }
  used_bytes_ += bytes;
  used_by_user_[uid] += bytes;
  return Reservation(this, bytes, uid);
}

std::uint64_t ArenaBudget::used_bytes() const {
  MutexLock lock(mutex_);
  return used_bytes_;
}

std::uint64_t ArenaBudget::used_bytes(uid_t uid) const {
  MutexLock lock(mutex_);
  return used_by(uid);
}

std::map<uid_t, std::uint64_t> ArenaBudget::used_by_users() const {
  MutexLock lock(mutex_);
  return used_by_user_;
}

void ArenaBudget::give_back(std::uint64_t bytes, uid_t uid) {
  MutexLock lock(mutex_);
  used_bytes_ -= bytes;
  const auto used = used_by_user_.find(uid);
  used->second -= bytes;
  if (used->second == 0) used_by_user_.erase(used);
}

ArenaBudget::Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      uid_(other.uid_) {}

ArenaBudget::Reservation& ArenaBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    reset();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    uid_ = other.uid_;
  }
  return *this;
}

void ArenaBudget::Reservation::reset() {
  if (budget_ != nullptr)
    std::exchange(budget_, nullptr)->give_back(std::exchange(bytes_, 0), uid_);
}

std::optional<ArenaBudget::ShmPromise> ArenaBudget::promise_shm(std::uint64_t bytes,
                                                                std::uint64_t free_bytes) {
  MutexLock lock(mutex_);
  if (bytes > free_bytes - std::min(free_bytes, promised_shm_)) return std::nullopt;
  promised_shm_ += bytes;
  return ShmPromise(this, bytes);
}

ArenaBudget::ShmPromise::ShmPromise(ShmPromise&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

ArenaBudget::ShmPromise& ArenaBudget::ShmPromise::operator=(ShmPromise&& other) noexcept {
  if (this != &other) {
    reset();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void ArenaBudget::ShmPromise::keep(std::uint64_t bytes) {
  if (budget_ == nullptr) return;
  MutexLock lock(budget_->mutex_);
  bytes = std::min(bytes, bytes_);
  bytes_ -= bytes;
  budget_->promised_shm_ -= bytes;
}

void ArenaBudget::ShmPromise::reset() {
  keep(bytes_);
  budget_ = nullptr;
}

}  // namespace spdld::delivery
