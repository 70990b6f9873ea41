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
#include "source/frame_table.h"
#include "source/packet_table.h"

namespace spdld::source {

// The CodecParameters of many files, each kept once: by the hash of its text. Thread-safe.
class CodecPool {
 public:
  using Codec = std::shared_ptr<const CodecParameters>;

  std::uint64_t add(const CodecParameters& codec) SPDLD_EXCLUDES(mutex_);
  // Of what texts() gave. False: it is damaged.
  bool add_text(std::string_view text) SPDLD_EXCLUDES(mutex_);
  // Null: there is none of that hash.
  Codec find(std::uint64_t hash) const SPDLD_EXCLUDES(mutex_);
  // By their hashes.
  std::map<std::uint64_t, std::string> texts() const SPDLD_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::string text;
    Codec codec;
  };

  mutable Mutex mutex_;
  std::map<std::uint64_t, Entry> entries_ SPDLD_GUARDED_BY(mutex_);
};

// A stream of a file as it is kept: the tables' texts lie in the record's.
struct StreamRecord {
  StreamInfo info;
  std::string_view language;
  bool is_default = false;
  FrameTable frames;
  PacketTable packets;
};

struct MediaRecord {
  std::string_view format;
  std::vector<StreamRecord> streams;
  std::vector<std::string_view> faults;
};

// A file in few bytes. An error says what of it cannot be kept: times that are none, say.
Result<std::string> media_record_text(const MediaFile& file, CodecPool& codecs);
// What the text holds, which outlives the record; none: it is damaged, or a codec is not there.
std::optional<MediaRecord> read_media_record(std::string_view text, const CodecPool& codecs);

}  // namespace spdld::source
