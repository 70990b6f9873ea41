// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "source/listing/listing.h"

namespace spdld::source {

// Keeps a listing in a file, so that a daemon that restarts need not read a million directory
// entries again. All little-endian; strings are a u32 of bytes and these:
//
//   "SPDLIDX2"                          the format's name and version
//   string key                          what was listed and how, in words
//   string digest
//   u64 items, i64 listed_at_ns, u8 remote
//   u64 n, n × string                   top-level directories
//   u64 n, n × (string, u64, 2 × i64)   stamps: path, inode, mtime_ns, ctime_ns
//   u64 n, n × (u64, string)            runs: first item, top-level directory
//   u64 n, n × u64                      where each 16th entry begins
//   u64 bytes, bytes                    entries (Listing::blob_)
//   u64                                 XXH3 of all before
//
// A file of another version, key or checksum is as good as none.
class ListingFile {
 public:
  // Replaces `path` as a whole or not at all; it is on the disk on return.
  static Status save(const Listing& listing, const std::string& key, const std::string& path);
  // kNotFound: there is none; kDataLoss: there is something else.
  static Result<Listing> load(const std::string& key, const std::string& path);
  // Whatever its key.
  static Result<Listing> load(const std::string& path);

 private:
  static Result<Listing> read(const std::string* key, const std::string& path);
  static bool is_sound(const Listing& listing);
};

}  // namespace spdld::source
