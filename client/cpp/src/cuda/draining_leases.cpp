// SPDX-License-Identifier: Apache-2.0
#include "cuda/draining_leases.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "spdld/error.h"

namespace spdld::client::cuda {

DrainingLeases::~DrainingLeases() {
  if (!device_->in_owner()) return;
  for (Draining& left : wait_for(std::move(draining_))) keep(left);
}

void DrainingLeases::add(std::vector<Reader> readers, std::shared_ptr<Lease> lease,
                         std::shared_ptr<MappedArena> arena) {
  if (readers.empty()) return;  // nobody reads it
  std::vector<Draining> added(1);
  added[0] = {LastReads(std::move(readers)), std::move(arena), std::move(lease)};
  const Current current(*device_);
  if (!current) {  // the process ends
    keep(added[0]);
    return;
  }
  try {
    (void)added[0].reads.note(*device_);
  } catch (const DeviceError&) {
    // It is asked again, and the loader told of what is wrong then.
  }
  const bool is_over = added[0].reads.is_none();
  std::unique_lock lock(mutex_);
  if (!closed_) {
    draining_.push_back(std::move(added[0]));
    lock.unlock();
    if (is_over) reap_unheard();
    return;
  }
  // Those whose stream was captured may have become ones that can be waited for.
  std::move(draining_.begin(), draining_.end(), std::back_inserter(added));
  draining_.clear();
  lock.unlock();
  std::vector<Draining> left = wait_for(std::move(added));
  lock.lock();
  std::move(left.begin(), left.end(), std::back_inserter(draining_));
}

void DrainingLeases::reap_unheard() {
  try {
    reap();
  } catch (const DeviceError&) {
    // The loader is told at its next call, if it is so then.
  }
}

void DrainingLeases::reap() {
  std::vector<Draining> over;  // ends outside the lock
  std::exception_ptr failed;
  {
    const std::lock_guard lock(mutex_);
    if (draining_.empty()) return;
    const Current current(*device_);
    std::vector<Draining> left;
    for (Draining& each : draining_) {
      bool is_over = false;
      try {
        is_over = each.reads.note(*device_) && each.reads.is_over(*device_);
      } catch (const DeviceError&) {
        if (failed == nullptr) failed = std::current_exception();
      }
      (is_over ? over : left).push_back(std::move(each));
    }
    draining_ = std::move(left);
  }
  over.clear();
  if (failed != nullptr) std::rethrow_exception(failed);
}

std::uint32_t DrainingLeases::draining() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(
      std::count_if(draining_.begin(), draining_.end(),
                    [](const Draining& each) { return each.reads.is_noted(); }));
}

std::uint32_t DrainingLeases::captured() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(
      std::count_if(draining_.begin(), draining_.end(),
                    [](const Draining& each) { return !each.reads.is_noted(); }));
}

void DrainingLeases::close() {
  std::vector<Draining> all;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    all = std::exchange(draining_, {});
  }
  std::vector<Draining> left = wait_for(std::move(all));
  const std::lock_guard lock(mutex_);
  std::move(left.begin(), left.end(), std::back_inserter(draining_));
}

std::vector<DrainingLeases::Draining> DrainingLeases::wait_for(
    std::vector<Draining> draining) const {
  std::vector<Draining> left;
  const Current current(*device_);
  for (Draining& each : draining) {
    bool noted = false;
    try {
      noted = current && each.reads.note(*device_);
    } catch (const DeviceError&) {
      // Nobody knows how far its streams are.
    }
    if (noted) {
      each.reads.wait(*device_);
    } else {
      left.push_back(std::move(each));
    }
  }
  return left;
}

void DrainingLeases::keep(Draining& draining) {
  draining.arena->keep_mapped();
  draining.lease->forget();
}

}  // namespace spdld::client::cuda
