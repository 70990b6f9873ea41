// SPDX-License-Identifier: Apache-2.0
#include "source/file/range_reader.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <utility>

#include "base/memory/no_memory.h"
#include "source/file/expected_content.h"
#include "source/file/open_part.h"

namespace spdld::source {
std::int64_t RangeReader::wall_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             options_.clock->wall().time_since_epoch())
      .count();
}

RangeReader::Outcome RangeReader::open(const FileRange& range, Opened& opened, How how) const {
  opened.absent = false;
  if (const int err = disk_of(range).open(range.uri, opened.file); err != 0) {
    opened.absent = range.may_be_absent && (err == ENOENT || err == ENOTDIR);
    if (opened.absent) {
      opened.size_bytes = 0;
      return {};
    }
    return failed(err, "cannot open", range, opened.file.why_not);
  }
  if (how.wants_stamp || range.expected) opened.stamp = stamp_of_fd(opened.file.fd.get());
  for (const auto* const expected : {&range.expected, &range.expected_part}) {
    if (!*expected) continue;
    Outcome outcome = check(**expected, range, opened, how.may_block);
    if (outcome.kind != Outcome::Kind::kDone) return outcome;
  }
  const std::uint64_t size = opened.file.size_bytes;
  if (range.size_bytes == PartRequest::kToItsEnd) {
    opened.size_bytes = size - std::min(size, range.offset);
  } else if (range.offset > size || range.size_bytes > size - range.offset) {
    return not_listed_so(
        range, " has " + std::to_string(size) + " bytes, too few for what was listed of it");
  } else {
    opened.size_bytes = range.size_bytes;
  }
  return {};
}

RangeReader::Outcome RangeReader::check(const ExpectedContent& expected, const FileRange& range,
                                        const Opened& opened, bool may_block) const {
  if (!opened.stamp)
    return {Outcome::Kind::kTransient, {Code::kUnavailable, "cannot look at " + path_of(range)}};
  std::string how;
  switch (likeness(expected, *opened.stamp, how)) {
    case Likeness::kSame: return {};
    case Likeness::kOther: return not_listed_so(range, how);
    case Likeness::kUnknown: break;
  }
  if (!may_block) return {Outcome::Kind::kWouldBlock, {}};
  OpenPart part(disk_of(range), opened.file, path_of(range), expected.offset, expected.size_bytes);
  Status compared = compare_content(expected, part, wall_ns());
  if (compared.ok()) return {};
  if (compared.code() == Code::kDataLoss) return not_listed_so(range, compared.message());
  const bool is_transient = compared.code() == Code::kUnavailable || compared.code() == kNoMemory;
  return {is_transient ? Outcome::Kind::kTransient : Outcome::Kind::kFailed, std::move(compared)};
}

RangeReader::Outcome RangeReader::make_room(ItemBytes& item, Progress& progress) const {
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < progress.count; ++i) {
    size += progress.opened[i].size_bytes;
    if (size <= options_.max_item_bytes) continue;
    return {Outcome::Kind::kFailed,
            Status(Code::kResourceExhausted, path_of(item.ranges()[i]) + " has " +
                                                 std::to_string(size) + " bytes, more than the " +
                                                 std::to_string(options_.max_item_bytes) +
                                                 " that an item may have")};
  }
  const std::uint64_t wanted =
      ByteBuffer::grown(size + 1) + (item.revision.unchanged ? item.revision.kept_bytes : 0);
  if (!count(item.bytes, wanted))
    return {.kind = Outcome::Kind::kNoRoom, .status = {}, .wanted_bytes = wanted};
  try {
    item.bytes.resize(size + 1);  // a byte more than there should be, to see a file that grew
  } catch (const std::bad_alloc&) {
    return {Outcome::Kind::kFailed, no_memory(path_of(item.ranges().front()), size)};
  }
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < progress.count; ++i)
    item.end_range(end += progress.opened[i].size_bytes);
  progress.has_room = true;
  return {};
}

bool RangeReader::count(ByteBuffer& out, std::uint64_t bytes) const {
  if (options_.buffers == nullptr || out.counted_bytes() >= bytes) return true;
  if (out.counted_bytes() > 0) out.shrink(0);  // of an item that was read before it
  auto share = options_.buffers->take(reader_, bytes);
  if (!share) return false;
  out.count(*std::move(share));
  return true;
}

RangeReader::Outcome RangeReader::advance(ItemBytes& item, Progress& progress,
                                          bool may_block) const {
  const std::span<const FileRange> ranges = item.ranges();
  Revision& revision = item.revision;
  const std::size_t asked_of = revision.asked ? item.range_of(revision.request) : ranges.size();
  while (progress.count < ranges.size()) {
    const std::size_t at = progress.count;
    if (!may_block) {
      const Disk::Opening opening = disk_of(ranges[at]).opening(ranges[at].uri);
      progress.device = opening.device;
      if (!opening.at_once) return {Outcome::Kind::kWouldBlock, {}};
    }
    Opened& opened = progress.opened[at];
    Outcome outcome =
        open(ranges[at], opened, {.wants_stamp = at == asked_of, .may_block = may_block});
    if (outcome.kind != Outcome::Kind::kDone) return outcome;
    if (ranges[at].may_be_absent) item.set_range_absent(at, opened.absent);
    if (at == asked_of && item.places_of(at) == 1) {
      revision.unchanged = opened.stamp && opened.stamp == revision.known;
      if (revision.unchanged) opened.size_bytes = 0;
    }
    ++progress.count;
  }
  if (!progress.has_room) {
    item.restart_ranges();
    Outcome outcome = make_room(item, progress);
    if (outcome.kind != Outcome::Kind::kDone) return outcome;
  }
  std::uint64_t left_at_once = may_block ? ~std::uint64_t{0} : kMostAtOnceBytes;
  for (; progress.range < ranges.size(); ++progress.range, progress.done_bytes = 0) {
    Opened& opened = progress.opened[progress.range];
    if (opened.absent || (progress.range == asked_of && revision.unchanged)) continue;
    Outcome outcome =
        read(ranges[progress.range], opened, item.bytes.data() + item.begin_of(progress.range),
             progress.done_bytes, left_at_once, may_block);
    if (outcome.kind != Outcome::Kind::kDone) return outcome;
  }
  item.bytes.resize(item.bytes.size() - 1);
  // What changed while it was read is neither the old content nor the new one.
  if (asked_of < ranges.size() && !revision.unchanged) {
    const Opened& opened = progress.opened[asked_of];
    if (opened.stamp && is_settled(*opened.stamp, wall_ns()) &&
        stamp_of_fd(opened.file.fd.get()) == opened.stamp) {
      revision.stamp = opened.stamp;
    }
  }
  return {};
}

RangeReader::Outcome RangeReader::read(const FileRange& range, Opened& opened, std::byte* out,
                                       std::uint64_t& done_bytes, std::uint64_t& left_at_once,
                                       bool may_block) const {
  const OpenFile& file = opened.file;
  const bool whole = range.size_bytes == PartRequest::kToItsEnd;
  const std::uint64_t size = opened.size_bytes;
  // Of a whole file a byte more than there should be; the next range is read over it.
  const std::uint64_t wanted = whole ? size + 1 : size;
  while (done_bytes < size || (whole && size == 0)) {
    if (left_at_once == 0) return {Outcome::Kind::kWouldBlock, {}};
    const std::span<std::byte> rest(out + done_bytes, std::min(wanted - done_bytes, left_at_once));
    const std::uint64_t at = range.offset + done_bytes;
    const ssize_t count = may_block ? disk_of(range).read(file, rest, at)
                                    : disk_of(range).read_cached(file, rest, at);
    if (count < 0) {
      if (!may_block && Disk::is_uncached(count)) return {Outcome::Kind::kWouldBlock, {}};
      return failed(static_cast<int>(-count), "cannot read", range);
    }
    if (count == 0) {
      if (size == 0) break;
      // Some kernels answer so for what is not in the page cache.
      if (!may_block) return {Outcome::Kind::kWouldBlock, {}};
      return not_listed_so(range, " became shorter while it was read");
    }
    done_bytes += static_cast<std::uint64_t>(count);
    left_at_once -= std::min<std::uint64_t>(left_at_once, static_cast<std::uint64_t>(count));
  }
  if (done_bytes > size) return not_listed_so(range, " became longer while it was read");
  if (range.expected) {
    // Opened again, it is compared with the index again.
    if (stamp_of_fd(file.fd.get()) != opened.stamp)
      return {Outcome::Kind::kTransient,
              {Code::kUnavailable, path_of(range) + " changed while it was read"}};
  }
  return {};
}

RangeReader::Outcome RangeReader::not_listed_so(const FileRange& range,
                                                const std::string& how) const {
  return {Outcome::Kind::kFailed, not_as_listed(path_of(range), range, how)};
}

RangeReader::Outcome RangeReader::failed(int err, const char* what, const FileRange& range,
                                         const std::string& why) const {
  RangeError error = range_error(err, what, path_of(range), range, why);
  return {error.is_transient ? Outcome::Kind::kTransient : Outcome::Kind::kFailed,
          std::move(error.status)};
}

std::string RangeReader::path_of(const FileRange& range) const {
  const std::string& root = roots_[range.root].path;
  return (root == "/" ? "" : root) + "/" + range.uri;
}

}  // namespace spdld::source
