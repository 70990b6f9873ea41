// SPDX-License-Identifier: Apache-2.0
#include "source/table/record_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace spdld::source {
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

}  // namespace spdld::source
