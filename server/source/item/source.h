// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/credentials.h"
#include "op/media.h"
#include "op/value.h"
#include "source/item/fetched_item.h"
#include "source/item/part_bytes.h"

namespace spdld::source {

// Told when a fetch that could not be finished at once has ended. Called from the source's threads,
// once per pending fetch; must not block.
class FetchSink {
 public:
  virtual ~FetchSink() = default;
  virtual void fetched(std::uint64_t token, Status status) = 0;
};

enum class FetchState {
  kReady,    // the bytes are there
  kPending,  // FetchSink::fetched will say
};

// What a source tells of each item under one name.
struct SourceField {
  enum class Kind {
    kPart,   // bytes that fetch() brings
    kValue,  // what the listing knows
  };
  std::string name;
  Kind kind = Kind::kPart;
  std::size_t index = 0;                     // of the part, or of the value
  ValueType type = ValueType::kInt64;        // of a value
  bool text = false;                         // the part is UTF-8
  bool classes = false;                      // the value is a class number, or a list of them
  std::optional<std::uint64_t> max_bytes{};  // the largest there is of a part, text or list
  std::optional<ClipShape> clip{};           // the part is clips of media files
  bool optional = false;                     // items need not have it
  // Of what is optional: the index of the bool value that tells which items have it. None: of a
  // part, which shows only when it is fetched.
  std::optional<std::size_t> presence{};

  friend bool operator==(const SourceField&, const SourceField&) = default;
};

// Enumerates a dataset's items and brings their parts. The listing is fixed for the source's life.
// Thread-safe: workers call it at once. Implementations share tests/conformance/source_suite.h.
class Source {
 public:
  virtual ~Source() = default;

  virtual std::uint64_t size() const = 0;
  // Of the sequence of items: relative uris and N. Hex. Differs when an item comes or goes.
  virtual const std::string& listing_digest() const = 0;
  // Of what else the listing knows, such as values, and where shards hold their samples; empty: it
  // follows from the listing and the classes.
  virtual std::string values_digest() const { return {}; }

  // Names that differ; at least one part, but of a dataset of the user's own (DatasetSpec).
  virtual const std::vector<SourceField>& fields() const = 0;
  // Class names in index order; empty without labels.
  virtual const std::vector<std::string>& classes() const = 0;

  // The numbers that the data themselves have for the classes, in index order; empty: none others.
  virtual std::span<const std::int64_t> category_ids() const { return {}; }

  // Names the item in messages, without blocking: where its name stands in the data themselves and
  // is not at hand, by its place there. `item` < size(), here and below.
  virtual std::string uri(std::uint64_t item) const = 0;
  // The item's name. May block.
  virtual std::string read_uri(std::uint64_t item) const { return uri(item); }
  // The value of index `value` of the item; valid for as long as the source is.
  virtual Value value(std::uint64_t item, std::size_t value) const = 0;

  // Brings what is requested of the item into `out`, without blocking; `requests` is read during
  // the call alone. kReady: done. kPending: `sink.fetched(token, …)` comes later, and `out` belongs
  // to the source until then. Transient errors are retried inside; what comes out is final:
  // kNotFound, kPermissionDenied, kUnavailable (retries used up), kDataLoss (the item is not what
  // the listing saw). An optional part that the item does not have is absent in `out`.
  // `out.revision`, where it asks, may spare the bytes of one request; a source whose items cannot
  // be told apart brings all each time and gives no stamp. `out.clips` is set by a source of clips;
  // all others leave it as the caller gave it, which is empty.
  virtual Result<FetchState> fetch(std::uint64_t item, std::span<const PartRequest> requests,
                                   FetchedItem& out, FetchSink& sink, std::uint64_t token) = 0;

  // Brings those of the items that are at hand, as a fetch() does that returns kReady, but looks at
  // each of their files once for all. All other items, and all errors, are left to fetch(). Never
  // blocks. May change WantedItem::item and the order of `items`. After an exception none of them
  // counts as brought.
  virtual void bring_at_hand(std::span<WantedItem> /*items*/, std::span<const PartRequest>) {}

  // The same items for another reader: kPermissionDenied where that one may not list what the
  // listing was made of, and each fetch asks for that one's rights. Blocks. Null: the items are
  // nobody's files, so that every reader may have this source.
  virtual Result<std::unique_ptr<Source>> read_by(const Credentials&) const {
    return std::unique_ptr<Source>();
  }

  // The part, to be read at any place by the code that indexes it. Blocks; errors as those of
  // fetch(), but that nothing is retried. kUnimplemented: the items are nobody's files.
  virtual Result<std::unique_ptr<PartBytes>> open_part(std::uint64_t item, std::size_t part) const;

  // What SelectSpec::Split goes by: of the item's name, which stays the same whatever comes or goes
  // beside it.
  virtual std::uint64_t split_hash(std::uint64_t item) const;

  // Whether the listing says that the item has this part; of one that is not optional it always
  // does.
  virtual bool has_part(std::uint64_t, std::size_t) const { return true; }

  // Names the part's bytes for caches: of sources with one origin, parts with one key are the same
  // bytes as long as the stamp of Revision is the same.
  virtual std::uint64_t part_key(std::uint64_t item, std::size_t part) const;
  // How large the part is by the listing, of a part that is no whole file; none: it is one.
  virtual std::optional<std::uint64_t> listed_bytes(std::uint64_t item, std::size_t part) const;
  // The endings that names of the part's files have, without the dot and in lower case, of the
  // first kMostSeen items; each once. Empty: none of them has one. Does not block.
  virtual std::vector<std::string> suffixes(std::size_t part) const;
  static constexpr std::uint64_t kMostSeen = 1000;
  // Where the bytes come from, whatever is taken of them. Empty: that cannot be said.
  virtual std::string origin() const { return {}; }

  // Names the listing and the classes so that they can be opened again; empty: they cannot.
  virtual std::string dataset() const { return {}; }
  // From the next fetch on, the data are looked for anew where they lie, should they have been
  // moved or replaced as a whole. Does not block.
  virtual void look_again() {}
  // Whether what was listed may differ from what a listing would find now. May block.
  virtual bool has_changed() { return false; }
};

}  // namespace spdld::source
