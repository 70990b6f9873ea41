// SPDX-License-Identifier: Apache-2.0
#include "delivery/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/check.h"
#include "base/failpoint.h"

namespace spdld::delivery {
namespace {

bool contains(const std::vector<HolderId>& holders, HolderId holder) {
  return std::find(holders.begin(), holders.end(), holder) != holders.end();
}

bool erase_one(std::vector<HolderId>& holders, HolderId holder) {
  const auto found = std::find(holders.begin(), holders.end(), holder);
  if (found == holders.end()) return false;
  holders.erase(found);
  return true;
}

std::uint64_t lease_id(std::uint32_t index, std::uint32_t epoch) {
  return static_cast<std::uint64_t>(epoch) << 32 | index;
}

}  // namespace

SlotTable::SlotTable(std::uint32_t slot_count) : slots_(slot_count) {
  // A random start keeps a lease of a daemon that died from meaning anything to the next one.
  std::random_device random;
  for (Slot& slot : slots_) slot.epoch = random();
  free_.reserve(slot_count);
  for (std::uint32_t i = slot_count; i > 0; --i) free_.push_back(i - 1);
}

std::optional<std::uint32_t> SlotTable::loan() {
  MutexLock lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.loaned = true;
  ++slot.epoch;
  SPDLD_FAILPOINT("delivery.slot.loaned");
  return index;
}

void SlotTable::commit(std::uint32_t slot, std::uint32_t readers) {
  MutexLock lock(mutex_);
  SPDLD_CHECK(slot < slots_.size() && slots_[slot].loaned);
  slots_[slot].loaned = false;
  slots_[slot].expected = readers;
  (void)settle(slot);
  if (readers > 0) SPDLD_FAILPOINT("delivery.slot.committed");
}

void SlotTable::abort(std::uint32_t slot) { commit(slot, 0); }

Result<std::uint64_t> SlotTable::acquire(std::uint32_t index, HolderId holder) {
  MutexLock lock(mutex_);
  SPDLD_CHECK(index < slots_.size());
  Slot& slot = slots_[index];
  if (slot.expected == 0) {
    return error(Code::kFailedPrecondition,
                 fmt::format("slot {} has no batch that waits for a reader", index));
  }
  if (contains(slot.holders, holder) || contains(slot.retirees, holder)) {
    return error(Code::kFailedPrecondition,
                 fmt::format("consumer {} already has the batch in slot {}", holder, index));
  }
  --slot.expected;
  slot.holders.push_back(holder);
  return lease_id(index, slot.epoch);
}

Result<bool> SlotTable::release(std::uint64_t lease, HolderId holder) {
  MutexLock lock(mutex_);
  const std::uint32_t index = slot_of(lease);
  if (index >= slots_.size() || lease != lease_id(index, slots_[index].epoch) ||
      !erase_one(slots_[index].holders, holder)) {
    ++bad_releases_;
    return error(Code::kNotFound,
                 fmt::format("consumer {} has no lease {:#x}: it was released before, or never "
                             "given",
                             holder, lease));
  }
  return settle(index);
}

void SlotTable::expect(std::uint32_t index) {
  MutexLock lock(mutex_);
  SPDLD_CHECK(index < slots_.size() && slots_[index].expected > 0);
  ++slots_[index].expected;
}

bool SlotTable::forgo(std::uint32_t index) {
  MutexLock lock(mutex_);
  SPDLD_CHECK(index < slots_.size());
  if (slots_[index].expected == 0) return false;
  --slots_[index].expected;
  return settle(index);
}

bool SlotTable::discard(std::uint32_t index) {
  MutexLock lock(mutex_);
  SPDLD_CHECK(index < slots_.size());
  if (slots_[index].expected == 0) return false;
  slots_[index].expected = 0;
  return settle(index);
}

std::uint32_t SlotTable::reclaim(HolderId holder) {
  MutexLock lock(mutex_);
  std::uint32_t freed = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const bool held = erase_one(slots_[i].holders, holder);
    const bool retired = erase_one(slots_[i].retirees, holder);
    if ((held || retired) && settle(i)) ++freed;
  }
  return freed;
}

std::uint32_t SlotTable::retire(HolderId holder) {
  MutexLock lock(mutex_);
  std::uint32_t retired = 0;
  for (Slot& slot : slots_) {
    if (!erase_one(slot.holders, holder)) continue;
    slot.retirees.push_back(holder);
    ++retired;
  }
  return retired;
}

std::uint32_t SlotTable::held(HolderId holder) const {
  MutexLock lock(mutex_);
  return static_cast<std::uint32_t>(
      std::count_if(slots_.begin(), slots_.end(),
                    [&](const Slot& slot) { return contains(slot.holders, holder); }));
}

bool SlotTable::holds(std::uint32_t slot, HolderId holder) const {
  MutexLock lock(mutex_);
  SPDLD_CHECK(slot < slots_.size());
  return contains(slots_[slot].holders, holder);
}

SlotState SlotTable::state_of(const Slot& slot) {
  if (slot.loaned) return SlotState::kLoaned;
  if (slot.expected > 0) return SlotState::kReady;
  if (!slot.holders.empty()) return SlotState::kLeased;
  if (!slot.retirees.empty()) return SlotState::kRetired;
  return SlotState::kFree;
}

SlotState SlotTable::state(std::uint32_t index) const {
  MutexLock lock(mutex_);
  SPDLD_CHECK(index < slots_.size());
  return state_of(slots_[index]);
}

bool SlotTable::has_retired() const {
  MutexLock lock(mutex_);
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return !slot.retirees.empty(); });
}

SlotTable::Counts SlotTable::counts() const {
  MutexLock lock(mutex_);
  Counts counts;
  counts.bad_releases = bad_releases_;
  for (const Slot& slot : slots_) {
    switch (state_of(slot)) {
      case SlotState::kFree: ++counts.free; break;
      case SlotState::kLoaned: ++counts.loaned; break;
      case SlotState::kReady: ++counts.ready; break;
      case SlotState::kLeased: ++counts.leased; break;
      case SlotState::kRetired: ++counts.retired; break;
    }
  }
  return counts;
}

bool SlotTable::idle() const {
  MutexLock lock(mutex_);
  return free_.size() == slots_.size();
}

// Called after something was taken from the slot that was not free before.
bool SlotTable::settle(std::uint32_t index) {
  if (state_of(slots_[index]) != SlotState::kFree) return false;
  free_.push_back(index);
  return true;
}

}  // namespace spdld::delivery
