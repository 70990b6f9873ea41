// SPDX-License-Identifier: Apache-2.0
#include "media/container/media_io.h"

extern "C" {
#include <libavutil/error.h>
#include <libavutil/mem.h>
}

#include <algorithm>
#include <cstdio>

#include "base/memory/no_memory.h"

namespace spdld::media {
namespace {

constexpr int kBufferBytes = 32 * 1024;

// Demuxers seek to and fro, and refill their buffer each time. This is far beyond what a sane file
// makes them read.
std::uint64_t most_read(std::uint64_t size) { return size * 8 + (std::uint64_t{256} << 20); }

}  // namespace

Result<std::unique_ptr<MediaIo>> MediaIo::open(ByteReader& reader, std::stop_token stop) {
  std::unique_ptr<MediaIo> io(new MediaIo(reader, std::move(stop)));
  auto* const buffer = static_cast<unsigned char*>(av_malloc(kBufferBytes));
  if (buffer == nullptr) return tl::unexpected<Status>(no_memory("an FFmpeg buffer"));
  io->context_.reset(avio_alloc_context(
      buffer, kBufferBytes, 0, io.get(),
      [](void* self, std::uint8_t* out, int size) {
        return static_cast<MediaIo*>(self)->read(
            std::as_writable_bytes(std::span(out, static_cast<std::size_t>(size))));
      },
      nullptr,
      [](void* self, std::int64_t offset, int whence) {
        return static_cast<MediaIo*>(self)->seek(offset, whence);
      }));
  if (io->context_ == nullptr) {
    av_free(buffer);
    return tl::unexpected<Status>(no_memory("an FFmpeg reader"));
  }
  return io;
}

void MediaIo::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

int MediaIo::read(std::span<std::byte> out) {
  if (!status_.ok()) return AVERROR(EIO);
  if (stopping()) {
    status_ = Status(Code::kCancelled, "reading was stopped");
    return AVERROR_EXIT;
  }
  if (position_ >= size()) return AVERROR_EOF;
  // A read ends where a skipped range begins or ends. A file in fragments has thousands of them.
  const auto range = std::partition_point(skipped_.begin(), skipped_.end(),
                                          [&](const Range& one) { return one.end <= position_; });
  if (range != skipped_.end()) {
    const bool skips = position_ >= range->begin;
    out = out.first(
        std::min<std::uint64_t>(out.size(), (skips ? range->end : range->begin) - position_));
    if (skips) {
      std::fill(out.begin(), out.end(), std::byte{0});
      return advance(out.size());
    }
  }
  const Result<std::size_t> count = reader_.read(position_, out);
  if (!count) {
    status_ = count.error();
    return AVERROR(EIO);
  }
  if (*count == 0) return AVERROR_EOF;
  return advance(*count);
}

int MediaIo::advance(std::size_t count) {
  position_ += count;
  read_bytes_ += count;
  if (read_bytes_ > most_read(size())) {
    status_ = Status(
        Code::kDataLoss,
        "corrupt media file: its headers lead round in circles: " + std::to_string(read_bytes_) +
            " bytes were read of a file of " + std::to_string(size()));
    return AVERROR(EIO);
  }
  return static_cast<int>(count);
}

std::int64_t MediaIo::seek(std::int64_t offset, int whence) {
  switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE: return static_cast<std::int64_t>(size());
    case SEEK_SET: break;
    case SEEK_CUR: offset += static_cast<std::int64_t>(position_); break;
    case SEEK_END: offset += static_cast<std::int64_t>(size()); break;
    default: return AVERROR(EINVAL);
  }
  if (offset < 0) return AVERROR(EINVAL);
  position_ = static_cast<std::uint64_t>(offset);
  return offset;
}

}  // namespace spdld::media
