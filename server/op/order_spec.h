// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// How a pipeline's items are found and ordered, as plain values: spec/ fills them from YAML,
// source/ acts on them, and neither knows the other.
namespace spdld {

// How often each item stands in an epoch: as rows that are its repetitions 0 to rows - 1.
struct Repeat {
  static constexpr std::uint32_t kMostRows = 1024;

  std::uint32_t rows = 1;
  // They stand next to each other in the order, one after the other, and lie in one batch;
  // otherwise all rows of all items are put in order alike.
  bool adjacent = true;

  // So many rows that lie in one batch; 0: each row stands for itself.
  std::uint64_t group() const { return adjacent && rows > 1 ? rows : 0; }
  // How many there are of what is put in order: items, or their rows.
  std::uint64_t places(std::uint64_t items) const { return adjacent ? items : items * rows; }

  friend bool operator==(const Repeat&, const Repeat&) = default;
};

struct Shuffle {
  enum class Kind { kNone, kGlobal, kBlock };
  // Of kGlobal: rows of like length stand next to each other, so that batches need little padding.
  // source/order/bucket_order.h says how.
  struct Bucket {
    std::string by = {};          // the field that holds the lengths
    std::uint64_t window = 8192;  // positions whose rows are put in order together
    std::uint64_t run = 128;      // rows of like length in a row

    friend bool operator==(const Bucket&, const Bucket&) = default;
  };

  Kind kind = Kind::kNone;
  std::uint64_t block = 4096;     // items a block
  std::uint64_t interleave = 16;  // blocks that are mixed with each other
  std::optional<Bucket> bucket = std::nullopt;
  // Of adjacent rows `block`, `window` and `run` count items, which are shuffled with all their
  // rows; else rows.
  Repeat repeat = {};

  friend bool operator==(const Shuffle&, const Shuffle&) = default;
};

// What becomes of the rows that do not fill a whole step of all shards.
enum class Tail { kDrop, kPad, kKeep };

struct ClassesSpec {
  enum class Kind {
    kDirectories,  // the sorted names of the top-level directories
    kList,         // `names`
    kFile,         // one name a line in `path`
    kPipeline,     // those of the pipeline `pipeline`
  };
  Kind kind = Kind::kDirectories;
  std::vector<std::string> names = {};
  std::string path = {};
  std::string pipeline = {};

  friend bool operator==(const ClassesSpec&, const ClassesSpec&) = default;
};

struct FilesSpec {
  // A file that belongs to each item, such as its mask: source/listing/companions.h says how the
  // pattern names it.
  struct Companion {
    std::string field = {};
    std::string pattern = {};
    bool optional = false;  // an item need not have one

    friend bool operator==(const Companion&, const Companion&) = default;
  };

  std::string root = {};                     // absolute
  std::vector<std::string> more_roots = {};  // whose items come behind those of `root`
  std::string pattern = "**/*";
  std::vector<std::string> exclude = {};  // patterns of files that are no items all the same
  enum class Label { kNone, kParentDir };
  Label label = Label::kNone;
  ClassesSpec classes = {};
  bool follow_symlinks = true;
  std::string field = "image";  // what the items' bytes are called
  std::vector<Companion> companions = {};

  friend bool operator==(const FilesSpec&, const FilesSpec&) = default;
};

// Transient I/O errors are tried `retries` more times with growing pauses, then fail.
struct RetrySpec {
  int retries = 5;

  friend bool operator==(const RetrySpec&, const RetrySpec&) = default;
};

}  // namespace spdld
