// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/byte_buffer.h"
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
};

}  // namespace spdld::source
