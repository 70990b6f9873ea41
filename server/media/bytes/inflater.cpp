// SPDX-License-Identifier: Apache-2.0
#include "media/bytes/inflater.h"

#include <algorithm>
#include <climits>

#include "base/memory/no_memory.h"

namespace spdld::media {

Inflater::~Inflater() {
  if (begun_) ::inflateEnd(&stream_);
}

Result<bool> Inflater::fill(std::span<const std::byte> data, std::span<std::uint8_t> out) {
  if (begun_) {
    ::inflateReset(&stream_);
  } else if (::inflateInit(&stream_) == Z_OK) {
    begun_ = true;
  } else {
    return tl::unexpected<Status>(no_memory("zlib's decompressor"));
  }
  std::size_t taken = 0;
  std::size_t filled = 0;
  int result = Z_OK;
  // zlib counts in 32 bits.
  while (filled < out.size() && result == Z_OK) {
    const std::size_t in = std::min<std::size_t>(data.size() - taken, UINT_MAX);
    const std::size_t room = std::min<std::size_t>(out.size() - filled, UINT_MAX);
    // zlib only reads, but knows no const.
    auto* next = const_cast<std::byte*>(data.data() + taken);
    stream_.next_in = reinterpret_cast<Bytef*>(next);
    stream_.avail_in = static_cast<uInt>(in);
    stream_.next_out = out.data() + filled;
    stream_.avail_out = static_cast<uInt>(room);
    result = ::inflate(&stream_, Z_NO_FLUSH);
    taken += in - stream_.avail_in;
    filled += room - stream_.avail_out;
  }
  if (result == Z_MEM_ERROR) return tl::unexpected<Status>(no_memory("zlib's decompressor"));
  return filled == out.size();
}

}  // namespace spdld::media
