// SPDX-License-Identifier: Apache-2.0
#include "source/file/held_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "source/file/expected_content.h"

namespace spdld::source {
namespace {

bool fill(Disk& disk, const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) {
  while (!out.empty()) {
    const ssize_t count = disk.read_cached(file, out, offset);
    if (count <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

// Whether the file that is open is what all that know of it have seen.
bool is_as_seen(const FileRange& range, const HeldFiles::Held& held) {
  std::string how;
  for (const auto* const expected : {&range.expected, &range.expected_part}) {
    if (*expected && likeness(**expected, held.stamp, how) != Likeness::kSame) return false;
  }
  return range.offset <= held.file.size_bytes &&
         range.size_bytes <= held.file.size_bytes - range.offset;
}

// The size of an item that can be brought with others; none: it cannot.
std::optional<std::uint64_t> bytes_of(const ItemBytes& item) {
  if (item.revision.asked) return std::nullopt;
  std::uint64_t bytes = 0;
  for (const FileRange& range : item.ranges()) {
    if (!range.expected || range.may_be_absent || range.size_bytes > HeldReader::kMostBytes)
      return std::nullopt;
    bytes += range.size_bytes;
  }
  return bytes;
}

}  // namespace

void HeldReader::bring(std::span<WantedItem> items) {
  std::vector<Piece> pieces;
  std::uint64_t left = kMostBytes;
  for (std::size_t i = 0; i < items.size(); ++i) {
    ItemBytes& item = *items[i].out;
    items[i].brought = item.ranges().empty();
    if (items[i].brought) item.bring_nothing();
    const std::optional<std::uint64_t> bytes = bytes_of(item);
    if (items[i].brought || !bytes || *bytes > left) continue;
    left -= *bytes;
    item.bytes.resize(*bytes);
    item.restart_ranges();
    std::uint64_t end = 0;
    for (std::size_t range = 0; range < item.ranges().size(); ++range) {
      item.end_range(end += item.ranges()[range].size_bytes);
      pieces.push_back({.item = i, .range = range});
    }
    items[i].brought = true;  // unless one of its ranges fails
  }
  const auto range_of = [&](const Piece& piece) -> const FileRange& {
    return items[piece.item].out->ranges()[piece.range];
  };
  std::sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) {
    const FileRange& one = range_of(a);
    const FileRange& other = range_of(b);
    return std::tie(one.expected->number, one.offset) <
           std::tie(other.expected->number, other.offset);
  });
  for (auto first = pieces.begin(); first != pieces.end();) {
    const auto last = std::find_if(first, pieces.end(), [&](const Piece& piece) {
      return range_of(piece).expected->number != range_of(*first).expected->number;
    });
    bring_from_file(items, {first, last});
    first = last;
  }
  // A row that waits for room among its reader's buffers must hold none that do not count.
  for (const Piece& piece : pieces) {
    if (!items[piece.item].brought) items[piece.item].out->bytes.shrink(0);
  }
}

void HeldReader::bring_from_file(std::span<WantedItem> items, std::span<const Piece> pieces) {
  const auto fail = [&](const Piece& piece) { items[piece.item].brought = false; };
  const auto fail_all = [&] { std::for_each(pieces.begin(), pieces.end(), fail); };
  const FileRange& any = items[pieces.front().item].out->ranges()[pieces.front().range];
  Disk& disk = reader_->disk_of(any);
  const HeldFiles::HeldPtr held = files_->get(any, disk);
  if (held == nullptr) return fail_all();
  // By the clock before the first read: a change after that shows in the stamp.
  const bool may_keep = is_settled(held->stamp, reader_->wall_ns());
  Windows windows;
  for (const Piece& piece : pieces) {
    ItemBytes& item = *items[piece.item].out;
    const FileRange& range = item.ranges()[piece.range];
    const std::span<std::byte> out(item.bytes.data() + item.begin_of(piece.range),
                                   range.size_bytes);
    if (!is_as_seen(range, *held) || !read(*held, disk, range, out, windows)) fail(piece);
  }
  // A file that is still as it was opened was so before the first read, too.
  if (stamp_of_fd(held->file.fd.get()) != held->stamp) return fail_all();
  if (!may_keep) return;
  for (ReadWindows::WindowPtr& window : windows.fresh) windows_->keep(std::move(window));
}

bool HeldReader::read(const HeldFiles::Held& held, Disk& disk, const FileRange& range,
                      std::span<std::byte> out, Windows& windows) {
  constexpr std::uint64_t kSize = ReadWindows::kWindowBytes;
  const std::uint64_t number = range.offset / kSize;
  const std::uint64_t begin = number * kSize;
  if (windows_ == nullptr || out.empty() || out.size() > ReadWindows::kMostRangeBytes ||
      range.offset + out.size() > begin + kSize)
    return fill(disk, held.file, out, range.offset);
  // Pieces are in the order of the file, so that each window is looked for once.
  if (windows.last == nullptr || windows.last->number != number) {
    ReadWindows::WindowPtr window = windows_->find(held.stamp, number);
    if (window == nullptr) {
      if (windows.fresh.size() == kMostFresh) return fill(disk, held.file, out, range.offset);
      const std::uint64_t size = std::min(kSize, held.file.size_bytes - begin);
      auto made = std::make_shared<ReadWindows::Window>();
      made->file = held.stamp;
      made->number = number;
      made->bytes = std::make_unique_for_overwrite<std::byte[]>(size);
      if (!fill(disk, held.file, {made->bytes.get(), size}, begin))
        return fill(disk, held.file, out, range.offset);
      window = made;
      windows.fresh.push_back(std::move(made));
    }
    windows.last = std::move(window);
  }
  std::memcpy(out.data(), windows.last->bytes.get() + (range.offset - begin), out.size());
  return true;
}

}  // namespace spdld::source
