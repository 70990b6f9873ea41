// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_buffer.h"
#include "base/credentials.h"
#include "base/status.h"
#include "op/tensor_spec.h"

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

// What tells the content of an item from any other that it had or will have. Compared for equality
// only; the zeros of a source that has no such thing are fine.
struct ItemStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;

  friend bool operator==(const ItemStamp&, const ItemStamp&) = default;
};

// The question and the answer of a fetch by someone who may have the bytes already.
struct Revision {
  std::optional<ItemStamp> known;  // what the caller has; none: nothing
  // Of the bytes that were brought; none: a later change might go unnoticed, so do not keep them.
  std::optional<ItemStamp> stamp;
  bool unchanged = false;  // the item still is `known`: no bytes were brought
};

// Enumerates a dataset's items and brings their bytes. The listing is fixed for the source's life.
// Thread-safe: workers call it at once. Implementations share tests/conformance/source_suite.h.
class Source {
 public:
  virtual ~Source() = default;

  virtual std::uint64_t size() const = 0;
  // Of the listing: relative uris, bytewise sorted, and N. Hex. Differs when an item comes or goes.
  virtual const std::string& listing_digest() const = 0;

  // The field that fetch() fills comes first; then what the listing itself knows, such as the
  // label.
  virtual const std::vector<TensorSpec>& fields() const = 0;
  // Class names in index order; empty without labels.
  virtual const std::vector<std::string>& classes() const = 0;

  // Names the item in messages. `item` < size(), here and below.
  virtual std::string uri(std::uint64_t item) const = 0;
  // The value of the scalar field fields()[field], field >= 1.
  virtual std::int64_t scalar(std::uint64_t item, std::size_t field) const = 0;

  // Brings the item's bytes into `out`, without blocking. kReady: done. kPending:
  // `sink.fetched(token, …)` comes later, and `out` belongs to the source until then. Transient
  // errors are retried inside; what comes out is final: kNotFound, kPermissionDenied, kUnavailable
  // (retries used up), kDataLoss (the item is not what the listing saw).
  virtual Result<FetchState> fetch(std::uint64_t item, ByteBuffer& out, FetchSink& sink,
                                   std::uint64_t token) = 0;

  // As fetch(), but brings nothing where the item has not changed since `revision.known`; which
  // `revision` then says. It too belongs to the source while the fetch is pending. By default items
  // cannot be told apart: all is brought each time, and nothing should be kept.
  virtual Result<FetchState> fetch_revision(std::uint64_t item, ByteBuffer& out, Revision& revision,
                                            FetchSink& sink, std::uint64_t token) {
    revision.stamp.reset();
    revision.unchanged = false;
    return fetch(item, out, sink, token);
  }

  // The same items for another reader: kPermissionDenied where that one may not list what the
  // listing was made of, and each fetch asks for that one's rights. Blocks. Null: the items are
  // nobody's files, so that every reader may have this source.
  virtual Result<std::unique_ptr<Source>> read_by(const Credentials&) const {
    return std::unique_ptr<Source>();
  }

  // Where the bytes come from: of two sources with the same origin and listing digest, item i is
  // the same thing. Empty: that cannot be said.
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
