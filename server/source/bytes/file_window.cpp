// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/file_window.h"

#include <algorithm>

#include "base/check.h"

namespace spdld::source {
namespace {

constexpr std::size_t kMinPiece = 4096;
// Bytes that cost less to read than a second read does to reach what lies behind them: about what a
// disk brings in the time that it takes to answer.
constexpr std::uint64_t kNear = 32768;

}  // namespace

Result<std::string_view> FileWindow::view(std::uint64_t offset, std::size_t size) {
  SPDLD_CHECK(size <= kMaxView);
  const bool held =
      offset >= begin_ && offset - begin_ <= held_ && size <= held_ - (offset - begin_);
  if (!held) {
    const bool near = offset >= begin_ && offset - begin_ <= held_ + kNear;
    piece_ = std::max(near ? std::min(piece_ * 2, kMaxView) : kMinPiece, kMinPiece);
    if (buffer_.size() < std::max(piece_, size)) buffer_.resize(std::max(piece_, size));
    begin_ = offset;
    held_ = 0;
    SPDLD_ASSIGN(held_, file_.read(offset, std::span(buffer_).first(std::max(piece_, size))));
  }
  const std::size_t at = offset - begin_;
  return std::string_view(buffer_.data() + at, std::min(size, held_ - at));
}

}  // namespace spdld::source
