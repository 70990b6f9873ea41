// SPDX-License-Identifier: Apache-2.0
#include "source/file/read_in_flight.h"

#include <algorithm>
#include <utility>

#include "base/memory/no_memory.h"

namespace spdld::source {

ReadInFlight::ReadInFlight(std::shared_ptr<const RangeReader> reader, const RetryPauses& pauses,
                           Start start, std::shared_ptr<PendingReads> reads, ItemBytes& out,
                           FetchSink& sink, std::uint64_t token, IoPool& io)
    : PendingRead(std::move(reads), out, sink, token),
      reader_(std::move(reader)),
      pauses_(pauses),
      uri_(item().ranges().front().uri),
      path_(reader_->path_of(item().ranges().front())),
      progress_(std::move(start.progress)),
      io_(io),
      room_(reader_->request_room()),
      wanted_bytes_(start.wanted_bytes),
      failures_(start.pause ? 1 : 0),
      first_pause_(start.pause) {
  // All ranges that name any name the same ones.
  for (const FileRange& range : item().ranges()) {
    for (const auto* const expected : {&range.expected, &range.expected_part}) {
      if (!*expected) continue;
      std::shared_ptr<const IndexedFiles> files = (*expected)->files->shared_from_this();
      if (std::find(indexed_.begin(), indexed_.end(), files) == indexed_.end())
        indexed_.push_back(std::move(files));
    }
  }
}

std::optional<std::chrono::nanoseconds> ReadInFlight::run() {
  if (first_pause_) return std::exchange(first_pause_, std::nullopt);
  RangeReader::Outcome outcome;
  do {
    if (!has_room()) return kUntilResumed;
    outcome = reader_->advance(item(), progress_, true);
    progress_ = {};  // what failed, or has to wait, is opened again
    wanted_bytes_ = outcome.wanted_bytes;
  } while (outcome.kind == RangeReader::Outcome::Kind::kNoRoom);
  if (outcome.kind != RangeReader::Outcome::Kind::kTransient) return end(std::move(outcome.status));
  if (failures_ < pauses_.retries()) return pauses_.pause(++failures_, uri_);
  if (outcome.status.code() == kNoMemory) return end(std::move(outcome.status));
  return end(Status(Code::kUnavailable, outcome.status.message() + ", also after " +
                                            std::to_string(failures_) +
                                            " retries; see that its storage answers"));
}

bool ReadInFlight::has_room() {
  if (wanted_bytes_ == 0) return true;
  auto share = room_.take(wanted_bytes_, [weak = weak_from_this(), &io = io_] {
    if (const auto read = weak.lock()) io.resume(*read);
  });
  if (!share) return false;
  item().bytes.count(*std::move(share));
  return true;
}

Status ReadInFlight::cancelled() const {
  return {Code::kCancelled, path_ + ": the source was closed"};
}

}  // namespace spdld::source
