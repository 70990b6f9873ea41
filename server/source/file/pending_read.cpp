// SPDX-License-Identifier: Apache-2.0
#include "source/file/pending_read.h"

#include <new>
#include <utility>

namespace spdld::source {

Status PendingReads::submit(IoPool& io, dev_t device, uid_t user,
                            const std::shared_ptr<PendingRead>& read) {
  bool is_listed = false;
  const auto take_back = [&] {
    if (!is_listed || claim(*read)) read->give_back();
  };
  try {
    {
      MutexLock lock(mutex_);
      reads_.push_back(read.get());
      read->place_ = reads_.size() - 1;
      is_listed = true;
    }
    Status status = io.submit(device, user, read);
    if (!status.ok()) take_back();
    return status;
  } catch (const std::bad_alloc&) {
    take_back();
    throw;
  }
}

void PendingReads::close(IoPool& io) {
  std::vector<std::shared_ptr<PendingRead>> untold;
  {
    MutexLock lock(mutex_);
    for (PendingRead* read : reads_) {
      read->place_ = PendingRead::kTold;
      untold.push_back(read->shared_from_this());
    }
    reads_.clear();
  }
  for (const auto& read : untold) {
    io.withdraw(*read);
    read->sink_.fetched(read->token_, read->cancelled());
  }
}

bool PendingReads::claim(PendingRead& read) {
  MutexLock lock(mutex_);
  const std::size_t place = std::exchange(read.place_, PendingRead::kTold);
  if (place == PendingRead::kTold) return false;
  reads_[place] = reads_.back();
  reads_.pop_back();
  if (place < reads_.size()) reads_[place]->place_ = place;
  return true;
}

PendingRead::PendingRead(std::shared_ptr<PendingReads> reads, ItemBytes& out, FetchSink& sink,
                         std::uint64_t token)
    : reads_(std::move(reads)), out_(out), sink_(sink), token_(token) {
  std::swap(item_, out_);
}

void PendingRead::cancel() {
  if (reads_->claim(*this)) sink_.fetched(token_, cancelled());
}

std::nullopt_t PendingRead::end(Status status) {
  if (reads_->claim(*this)) {
    item_.queued = queued();
    give_back();
    sink_.fetched(token_, std::move(status));
  }
  return std::nullopt;
}

void PendingRead::give_back() { std::swap(item_, out_); }

}  // namespace spdld::source
