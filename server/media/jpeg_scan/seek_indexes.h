// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "media/jpeg_scan/seek_index.h"
#include "op/jpeg_images.h"

namespace spdld::media {

// The seek indexes of the JPEG files that were decoded so far, found again by the files' bytes.
// One for a daemon: whoever decodes the same bytes uses the same index, which says nothing of them
// that decoding them would not. Thread-safe; a look-up holds one lock of many.
//
// What came first is kept until the end: a shuffled epoch asks for each file once, so that any
// other would be as good. The more of the limit is taken, the farther apart new entries are.
class SeekIndexes {
 public:
  // XXH3's 128 bits of a file's bytes, with a secret of this object: nobody can make two files that
  // have the same.
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };

  // Each number stands alone.
  struct Snapshot {
    std::uint64_t limit_bytes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t files = 0;    // that have an index here
    std::uint64_t refused = 0;  // indexes that found no room
    std::uint64_t contradicted = 0;
    std::uint64_t compared = 0;   // images that `verify` has read in both ways
    std::uint64_t different = 0;  // of these, those whose pixels were not the same
    JpegImages images = {};
  };

  explicit SeekIndexes(std::uint64_t limit_bytes);
  // What is known stays, also beyond it.
  void set_limit(std::uint64_t bytes) { limit_bytes_.store(bytes, std::memory_order_relaxed); }
  ~SeekIndexes();
  SeekIndexes(const SeekIndexes&) = delete;
  SeekIndexes& operator=(const SeekIndexes&) = delete;

  Key key_of(std::span<const std::byte> file) const;

  // What is known of a file: nothing, its index, or that it is odd, and not to be asked for one.
  struct Known {
    std::optional<SeekIndex> index = {};
    bool is_odd = false;
  };
  // A file of so many MCUs. An index may be read until this object is destroyed.
  Known find(const Key& key, int mcus_across, int mcus_down) const;

  // How far apart the entries of the next index shall be; none: there is no room for any.
  std::optional<SeekGrid> grid_for(int mcus_across, int mcus_down) const;
  // False: there was no room. Of two threads that add the same file's, the second changes nothing.
  bool add(const Key& key, const SeekGrid& grid, std::span<const std::uint64_t> entries);

  // The file has a scan that is not sound in every bit, or is too large.
  void add_odd(const Key& key);
  // The index of this file has contradicted its scan: the file is odd from now on.
  void contradicted(const Key& key);

  // Whether `verify` compares the image that a decoder is about to read: one of each `one_in` of
  // all decoders together, which of these is drawn anew each time.
  bool is_to_compare(std::uint32_t one_in);
  // All pixels that our decoder has made of this file were compared with libjpeg-turbo's: if they
  // are not the same, it is odd from now on.
  void compared(const Key& key, bool are_same);

  void count(JpegWay way) { counter_.count(way); }

  Snapshot snapshot() const;

 private:
  class Shard;
  static constexpr std::size_t kShards = 64;
  static constexpr std::size_t kSecretBytes = 192;

  Shard& shard_of(const Key& key) const;
  bool make_odd(const Key& key);
  bool take(std::uint64_t bytes);

  std::atomic<std::uint64_t> limit_bytes_;  // relaxed: a bound alone
  const std::array<unsigned char, kSecretBytes> secret_;
  // These guard nothing: each is a count, or a sum over the shards.
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> files_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> contradicted_{0};
  std::atomic<std::uint64_t> asked_{0};  // by is_to_compare()
  std::atomic<std::uint64_t> compared_{0};
  std::atomic<std::uint64_t> different_{0};
  JpegCounter counter_;
  const std::unique_ptr<std::array<Shard, kShards>> shards_;
};

}  // namespace spdld::media
