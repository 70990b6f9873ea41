// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "op/media.h"
#include "source/media_index/frame_table.h"
#include "source/media_index/packet_table.h"

namespace spdld::source {

// The CodecParameters of many files, each kept once and under a number: the hash of its text, or,
// where another text has that number, the next one that is free. Thread-safe.
class CodecPool {
 public:
  using Codec = std::shared_ptr<const CodecParameters>;
  using Hash = std::uint64_t (*)(std::string_view text);

  CodecPool();
  explicit CodecPool(Hash hash) : hash_(hash) {}

  // Its number.
  std::uint64_t add(const CodecParameters& codec) SPDLD_EXCLUDES(mutex_);
  // Takes what text() gave of that number. False: it is damaged, or the number is another text's.
  bool add_text(std::uint64_t number, std::string_view text) SPDLD_EXCLUDES(mutex_);
  // Null: there is none of that number.
  Codec find(std::uint64_t number) const SPDLD_EXCLUDES(mutex_);
  // Empty: there is none of that number.
  std::string text(std::uint64_t number) const SPDLD_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::string text;
    Codec codec;
  };

  const Hash hash_;
  mutable Mutex mutex_;
  std::map<std::uint64_t, Entry> entries_ SPDLD_GUARDED_BY(mutex_);
};

// A stream of a file as it is kept: the tables' texts lie in the record's.
struct StreamRecord {
  StreamInfo info;
  std::string_view language;
  bool is_default = false;
  std::uint64_t codec = 0;  // the number of info.codec in the pool
  FrameTable frames;
  PacketTable packets;
  std::vector<SoundGap> gaps;
};

struct MediaRecord {
  std::string_view format;
  std::vector<StreamRecord> streams;
  std::vector<std::string_view> faults;
};

// A file in few bytes. An error says what of it cannot be kept: times that are none, say.
Result<std::string> media_record_text(const MediaFile& file, CodecPool& codecs);
// Reads the text, which outlives the record; none: it is damaged, or a codec is not there.
std::optional<MediaRecord> read_media_record(std::string_view text, const CodecPool& codecs);

}  // namespace spdld::source
