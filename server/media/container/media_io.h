// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "media/bytes/byte_reader.h"
#include "media/container/ffmpeg.h"

namespace spdld::media {

// Lets libavformat read from one ByteReader, and nothing else. It remembers why a read failed,
// ends reading once it is asked to stop, and once a demuxer has read so much more than the file
// has that it must be going round in circles. Owned by a Demuxer, at a fixed address.
class MediaIo {
 public:
  static Result<std::unique_ptr<MediaIo>> open(ByteReader& reader, std::stop_token stop);
  MediaIo(const MediaIo&) = delete;
  MediaIo& operator=(const MediaIo&) = delete;

  AVIOContext* context() { return context_.get(); }
  std::uint64_t size() const { return reader_.size(); }

  // Half-open ranges of the file, ascending, which are not read from here on: zeros stand in their
  // place.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  void skip(std::vector<Range> ranges) { skipped_ = std::move(ranges); }

  // Why reading failed; ok if it has not.
  const Status& status() const { return status_; }
  // Adds to it, for failures that are found beside reading. The first one counts.
  void fail(Status status);
  bool stopping() const { return stop_.stop_requested(); }

 private:
  MediaIo(ByteReader& reader, std::stop_token stop) : reader_(reader), stop_(std::move(stop)) {}

  int read(std::span<std::byte> out);
  // So many bytes were given, were they read or skipped: an error once there were too many.
  int advance(std::size_t count);
  std::int64_t seek(std::int64_t offset, int whence);

  ByteReader& reader_;
  const std::stop_token stop_;
  AvPtr<AVIOContext> context_;
  std::uint64_t position_ = 0;
  std::uint64_t read_bytes_ = 0;
  std::vector<Range> skipped_;
  Status status_;
};

}  // namespace spdld::media
