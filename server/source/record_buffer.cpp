// SPDX-License-Identifier: Apache-2.0
#include "source/record_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace spdld::source {
namespace {

// Whether all of eight bytes are ASCII and none is NUL.
bool plain(const char* at) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kHigh = 0x8080808080808080;
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return ((word | (word - kOnes)) & kHigh) == 0;
}

}  // namespace

Status Place::fail(const std::string& file, const std::string& message, Code code) const {
  return {code, file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + message};
}

Place place_in(std::string_view text, std::size_t offset, std::uint64_t line) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t feed = before.rfind('\n');
  const std::string_view same_line = feed == before.npos ? before : before.substr(feed + 1);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const auto characters = std::count_if(same_line.begin(), same_line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  return {.line = line + static_cast<std::uint64_t>(lines),
          .column = static_cast<std::uint64_t>(characters) + 1};
}

RecordBuffer::RecordBuffer(ReadSome read, std::size_t first_read)
    : read_(std::move(read)), bytes_(first_read) {}

Result<bool> RecordBuffer::more() {
  if (ended_) return false;
  const std::size_t held = end_ - begin_;
  SPDLD_CHECK(!full());
  // What is read takes at least as much room as what is held: a record that is looked at from its
  // beginning after each call is looked at for at most twice its length.
  std::memmove(bytes_.data(), bytes_.data() + begin_, held);
  begin_ = 0;
  end_ = held;
  if (bytes_.size() < 2 * held) bytes_.resize(std::min(2 * held, kMaxRecord));
  while (end_ < bytes_.size()) {
    SPDLD_ASSIGN(const std::size_t count, read_(std::span(bytes_).subspan(end_)));
    end_ += count;
    ended_ = count == 0;
    if (ended_) break;
  }
  return end_ > held;
}

void RecordBuffer::pop(std::size_t bytes, std::uint64_t lines) {
  begin_ += bytes;
  line_ += lines;
}

Status RecordBuffer::skip_mark() {
  constexpr std::size_t kMark = 3;
  while (view().size() < kMark) {
    SPDLD_ASSIGN(const bool any, more());
    if (!any) break;
  }
  if (view().starts_with("\xEF\xBB\xBF")) pop(kMark, 0);
  if (view().starts_with("\xFF\xFE") || view().starts_with("\xFE\xFF")) {
    return {Code::kInvalidArgument, "it is UTF-16, and not UTF-8; save it as UTF-8"};
  }
  return {};
}

std::size_t find_bad_text(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size() && plain(text.data() + at)) {
      at += 8;
      continue;
    }
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0 || text[at] == '\0') return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string bad_text(std::string_view text, std::size_t offset) {
  if (text[offset] == '\0') return "a NUL byte; the file is no text, or cut off";
  return "the byte " + printable(text.substr(offset, 1)) +
         " belongs to no character of UTF-8; save the file as UTF-8";
}

}  // namespace spdld::source
