// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/memory/byte_buffer.h"

namespace spdld::source {

// What tells the content of a file from any other that it had or will have. Compared for equality
// only; the zeros of a source that has no such thing are fine.
struct ItemStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;

  friend bool operator==(const ItemStamp&, const ItemStamp&) = default;
};

class IndexedFiles;

// A file, or a part of one, as an index saw it, where offsets mean something only in that content.
struct ExpectedContent {
  ItemStamp stamp;
  IndexedFiles* files = nullptr;  // outlives the fetch
  std::uint64_t number = 0;       // among `files`
  // Where the part lies in its file.
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = ~std::uint64_t{0};  // this: to the file's end

  friend bool operator==(const ExpectedContent&, const ExpectedContent&) = default;
};

// Of an item's parts, the one that is wanted, or some bytes of it.
struct PartRequest {
  static constexpr std::uint64_t kToItsEnd = ~std::uint64_t{0};

  std::size_t part = 0;
  std::uint64_t offset = 0;  // in the part
  std::uint64_t size_bytes = kToItsEnd;
  // What the part must be for the offsets to mean anything; null: whatever it is by now. Read
  // during the call alone.
  const ExpectedContent* expected = nullptr;

  friend bool operator==(const PartRequest&, const PartRequest&) = default;
};

// The question and the answer of a fetch whose caller, such as a cache, may have a part's bytes
// already.
struct Revision {
  bool asked = false;
  std::size_t request = 0;         // which of the requests it is about
  std::optional<ItemStamp> known;  // what the caller has; none: nothing
  // Memory that the caller takes for what it has, if the part is unchanged. It counts with the
  // bytes that are brought, in one share: a row that waited for a second one while it holds a first
  // could wait for ever.
  std::uint64_t kept_bytes = 0;
  // Of the bytes that were brought; none: a later change might go unnoticed, so do not keep them.
  std::optional<ItemStamp> stamp;
  bool unchanged = false;  // the part still is `known`: its bytes were not brought
};

// A piece of a file that a fetch reads, and which requests it holds.
struct FileRange {
  std::size_t root = 0;  // of FileFetcher's, below which it lies
  std::string uri;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = PartRequest::kToItsEnd;  // kToItsEnd: whatever the file holds
  // Whether the file itself was seen; else something names it, and it may never have been there.
  bool listed = true;
  // Whether it is no error if the file is not there: then the requests are absent.
  bool may_be_absent = false;
  // What the file must be for the offsets to mean anything, and what a part of it must be; none:
  // whatever they are by now.
  std::optional<ExpectedContent> expected = {};
  std::optional<ExpectedContent> expected_part = {};
};

// Where the bytes of one request lie in ItemBytes::bytes.
struct PartPlace {
  static constexpr std::size_t kNone = ~std::size_t{0};

  std::size_t range = 0;                              // in which of the ranges; kNone: in none
  std::uint64_t offset = 0;                           // from the first byte of the range
  std::uint64_t size_bytes = PartRequest::kToItsEnd;  // kToItsEnd: to the end of the range
  bool absent = false;                                // the item has no such part, and no bytes
};

// The bytes of one item, as files are read: which ranges of which files, and where in `bytes` each
// request's lie. Each request is answered by one place in one range; ranges stand in `bytes` one
// after the other, in the order in which they were added.
//
// Owned by the caller of the fetch, which reuses it from item to item so that nothing is allocated;
// it belongs to the source while a fetch is pending (a read in flight takes all of it and gives it
// back, unless it was cancelled, before the sink is told). One thread at a time. After a fetch that
// failed the ranges are as they were asked for, and `bytes` means nothing.
class ItemBytes {
 public:
  ByteBuffer bytes;  // the ranges, one after the other
  Revision revision;
  // So long the last read waited for an I/O thread; 0: it needed none.
  std::chrono::nanoseconds queued{0};

  // The bytes of request `i`, of those that the ranges were laid out for.
  std::span<const std::byte> placed(std::size_t i) const {
    const PartPlace& place = places_[i];
    if (place.range == PartPlace::kNone) return {};
    const std::uint64_t end = begins_[place.range + 1];
    const std::uint64_t begin = std::min(begins_[place.range] + place.offset, end);
    return bytes.bytes().subspan(begin, std::min(place.size_bytes, end - begin));
  }
  std::size_t places() const { return places_.size(); }
  // Whether the item has no such part, which it need not have: then there are no bytes.
  bool is_absent(std::size_t i) const { return places_[i].absent; }

  // The source's. What is read for the next item: begin() empties all lists and keeps their memory.
  void begin() {
    ranges_ = 0;
    places_.clear();
    restart_ranges();
  }
  FileRange& add_range() {
    if (ranges_ == range_list_.size()) range_list_.emplace_back();
    FileRange& range = range_list_[ranges_++];
    range.root = 0;
    range.uri.clear();
    range.offset = 0;
    range.size_bytes = PartRequest::kToItsEnd;
    range.listed = true;
    range.may_be_absent = false;
    range.expected.reset();
    range.expected_part.reset();
    return range;
  }
  // Of the part that all ranges are of.
  void expect_part(const ExpectedContent& expected) {
    for (std::size_t i = 0; i < ranges_; ++i) range_list_[i].expected_part = expected;
  }
  void add_place(PartPlace place) { places_.push_back(place); }
  // The place of a part that the item does not have, or of request `i`.
  static constexpr PartPlace absent() { return {.range = PartPlace::kNone, .absent = true}; }
  void set_absent(std::size_t i) { places_[i] = absent(); }
  // Of all requests that lie in the range.
  void set_range_absent(std::size_t range, bool absent) {
    for (PartPlace& place : places_) {
      if (place.range == range) place.absent = absent;
    }
  }
  // In place of ranges, where the item has nothing of what is requested.
  void bring_nothing() {
    add_range();
    restart_ranges();
    bytes.resize(0);
    end_range(0);
    revision.stamp.reset();
    revision.unchanged = false;
  }
  std::span<const FileRange> ranges() const { return {range_list_.data(), ranges_}; }
  std::size_t range_of(std::size_t request) const { return places_[request].range; }
  std::size_t places_of(std::size_t range) const {
    return static_cast<std::size_t>(
        std::count_if(places_.begin(), places_.end(),
                      [range](const PartPlace& place) { return place.range == range; }));
  }
  // Where the ranges lie in `bytes`, once that is known: each is told where it ends, in order.
  void restart_ranges() { begins_.assign(1, 0); }
  void end_range(std::uint64_t end) { begins_.push_back(end); }
  std::uint64_t begin_of(std::size_t range) const { return begins_[range]; }

 private:
  std::vector<FileRange> range_list_;
  std::size_t ranges_ = 0;
  std::vector<PartPlace> places_;         // of each request
  std::vector<std::uint64_t> begins_{0};  // of each range in `bytes`, and the end of the last
};

}  // namespace spdld::source
