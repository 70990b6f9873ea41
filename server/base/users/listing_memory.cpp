// SPDX-License-Identifier: Apache-2.0
#include "base/users/listing_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace spdld {
namespace {

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

ListingMemory::Share::~Share() {
  MutexLock lock(all_->mutex_);
  (void)all_->change(*this, 0);
}

Status ListingMemory::Share::cover(std::uint64_t bytes) {
  MutexLock lock(all_->mutex_);
  if (bytes <= bytes_) return {};
  const std::uint64_t ahead = std::max(std::uint64_t{1} << 20, bytes / 8);
  if (bytes <= ~ahead && all_->change(*this, bytes + ahead).ok()) return {};
  return all_->change(*this, bytes);
}

Status ListingMemory::Share::resize(std::uint64_t bytes) {
  MutexLock lock(all_->mutex_);
  return all_->change(*this, bytes);
}

std::uint64_t ListingMemory::Share::bytes() const {
  MutexLock lock(all_->mutex_);
  return bytes_;
}

Status ListingMemory::change(Share& share, std::uint64_t bytes) {
  const auto user = used_.find(share.uid_);
  const std::uint64_t others = (user == used_.end() ? 0 : user->second) - share.bytes_;
  const std::uint64_t of_all = all_ - share.bytes_;
  if (bytes > share.bytes_) {
    const auto exceeds = [bytes](std::uint64_t taken, std::uint64_t limit) {
      return bytes > limit || taken > limit - bytes;
    };
    if (const auto most = limit(share.uid_); most && exceeds(others, *most))
      return {Code::kResourceExhausted,
              fmt::format("its items would take {} of memory or more, the other datasets of user "
                          "{} take {}, and limits.listing_memory allows {}: ask for fewer items or "
                          "columns, delete pipelines ('spdlctl delete pipeline NAME'), or have "
                          "limits.listing_memory raised",
                          mebibytes(bytes), share.uid_, mebibytes(others), mebibytes(*most))};
    if (exceeds(of_all, kUsers * limit_))
      return {Code::kResourceExhausted,
              fmt::format("its items would take {} of memory or more, all other datasets take {}, "
                          "and these may take {} times limits.listing_memory, {}: ask for fewer "
                          "items or columns, have pipelines deleted, or limits.listing_memory "
                          "raised",
                          mebibytes(bytes), mebibytes(of_all), kUsers, mebibytes(kUsers * limit_))};
  }
  share.bytes_ = bytes;
  all_ = of_all + bytes;
  if (others + bytes > 0) {
    used_[share.uid_] = others + bytes;
  } else if (user != used_.end()) {
    used_.erase(user);
  }
  return {};
}

std::optional<std::uint64_t> ListingMemory::limit(uid_t uid) const {
  return trusted_.contains(uid) ? std::nullopt : std::optional(limit_);
}

std::map<uid_t, std::uint64_t> ListingMemory::used() const {
  MutexLock lock(mutex_);
  return used_;
}

}  // namespace spdld
