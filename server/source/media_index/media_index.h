// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "source/item/item_bytes.h"
#include "source/media_index/media_record.h"

namespace spdld::source {

// A part that was probed, and what that has brought.
struct MediaEntry {
  std::uint64_t key = 0;  // Source::part_key(), which tells the parts of one origin apart
  ItemStamp stamp;        // of the file that it lies in
  // Whether no later change can leave that stamp as it is: else it is probed again.
  bool settled = false;
  // Why there is no record: kDataLoss, kInvalidArgument or kResourceExhausted.
  Code code = Code::kOk;
  // media_record_text(); or the message. `owner` holds it, for this entry or for many.
  std::string_view text = {};
  std::shared_ptr<const std::string> owner = nullptr;

  void set_text(std::string own) {
    owner = std::make_shared<const std::string>(std::move(own));
    text = *owner;
  }
};

// Tells what the media files of a source hold. Immutable, any thread.
class MediaIndex {
 public:
  // The entries' keys differ; they may be in any order.
  MediaIndex(std::vector<MediaEntry> entries, std::shared_ptr<const CodecPool> codecs);

  std::size_t size() const { return entries_.size(); }
  const std::vector<MediaEntry>& entries() const { return entries_; }  // by their keys
  // Null: there is none.
  const MediaEntry* find(std::uint64_t key) const;
  const CodecPool& codecs() const { return *codecs_; }
  // The digest of all that was found, whatever the files' times are. Hex.
  const std::string& digest() const { return digest_; }
  std::uint64_t bytes() const;  // in memory

 private:
  const std::vector<MediaEntry> entries_;
  const std::shared_ptr<const CodecPool> codecs_;
  const std::string digest_;
};

// The entries in one file, so that a media file is probed once. All little-endian; strings are a
// u32 of bytes and these:
//
//   "SPDLMED3"                  the format's name and version
//   string                      what was probed, in words
//   u64 n, n × codec            those that the entries name: u64 number, string (CodecPool)
//   u64 n, n × entry            u64 key; u64 inode, u64 bytes, i64 mtime_ns, i64 ctime_ns;
//                               u8 settled, u8 code, string
//   u64                         XXH3 of all before
//
// Replaces `path` as a whole or not at all; it is on the disk on return.
Status save_media_entries(const std::string& path, const std::string& what,
                          const std::vector<const MediaEntry*>& entries, const CodecPool& codecs);
// Reads such a file; its codecs come into `codecs`. kNotFound: there is none; kDataLoss: there
// is something else; kFailedPrecondition: something else was probed. `what` null: whatever it was.
Result<std::vector<MediaEntry>> load_media_entries(const std::string& path, const std::string* what,
                                                   CodecPool& codecs);

}  // namespace spdld::source
