// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "source/bytes/digest_text.h"

namespace spdld::source {

// A directory as it was when its entries were read; it has the same entries as long as this holds.
// Programs that unpack or copy files put a directory's mtime back; its ctime they cannot.
struct DirectoryStamp {
  std::string path;  // relative; empty for the root
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;

  friend bool operator==(const DirectoryStamp&, const DirectoryStamp&) = default;
};

// The relative uris of a dataset, bytewise sorted. Immutable once built; any thread. Neighbours
// share most of their bytes, so that only what differs is kept, with a whole uri each
// kBlock uris: about 10 bytes an item for a dataset like ImageNet.
class Listing {
 public:
  static constexpr std::uint64_t kBlock = 16;
  static constexpr std::size_t kMaxUri = 4096;

  std::uint64_t size() const { return size_; }
  std::string uri(std::uint64_t item) const;
  // Of the uris and their number: 32 hex digits.
  const std::string& digest() const { return digest_; }

  // The items below one top-level directory: [first, next run's first). Sorted, and together all
  // items; `directory` is empty for files that lie in the root itself.
  struct Run {
    std::uint64_t first;
    std::string directory;
  };
  const std::vector<Run>& runs() const { return runs_; }

  // The names of all directories right below the root, sorted, whether an item lies in them or not.
  std::vector<std::string> top_directories;
  std::vector<DirectoryStamp> stamps;
  std::int64_t listed_at_ns = 0;   // by the wall clock, before the first directory was read
  bool remote = false;             // part of it lies on a file system that may wait for a network
  ListingMemory::SharePtr memory;  // that it counts in

  std::uint64_t memory_bytes() const;

 private:
  friend class ListingBuilder;
  friend class ListingFile;

  // Entries: how many bytes are shared with the uri before, how many follow (LEB128), and these.
  std::string blob_;
  std::vector<std::uint64_t> offsets_;  // of every kBlock-th entry
  std::uint64_t size_ = 0;
  std::string digest_;
  std::vector<Run> runs_;
};

// Takes uris in order. One thread.
class ListingBuilder {
 public:
  // `uri` must be larger than the one before.
  void add(std::string_view uri);
  Listing finish() &&;

 private:
  Listing listing_;
  std::string last_;
  DigestBuilder digest_;
};

}  // namespace spdld::source
