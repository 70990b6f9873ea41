// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "spdld/arena.h"
#include "spdld/error.h"

namespace spdld {

using DType = wire::DType;
using FieldKind = wire::FieldKind;

namespace client {
struct BatchState;
}

// A position that can be resumed exactly: the one after a batch, whatever is prefetched or still
// held. Independent of batch size and number of shards.
struct Cursor {
  std::string order_digest = {};  // empty: not known, and not checked
  std::int64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  // first position of `step`, over all shards
  std::uint64_t step = 0;
  // How far the loop has come in a run of its job: it was handed `turn` batches of it, through
  // epochs, seeks and changes of the job. A loader that goes on from here goes through the changes
  // that the run has had since. In another run, and with run 0 (not known), the cursor is the place
  // alone.
  std::uint64_t run = 0;     // the daemon's number for it
  std::uint32_t branch = 0;  // counts how often all ranks have gone back and the run was changed
  std::uint64_t turn = 0;

  friend bool operator==(const Cursor&, const Cursor&) = default;
};

// One field of a batch. It points into the batch's memory and is valid as long as the batch, or
// what Batch::owner() gave for it, lives.
struct TensorView {
  std::string_view name;
  FieldKind kind = FieldKind::kDense;
  DType dtype = DType::kUInt8;
  bool meta = false;    // about the rows, not part of the sample: "__index", "__valid"
  bool copied = false;  // small: lies in the batch's own memory and pins no slot
  // `data` is an address of the batch's device, where kernels read the values, and may write to
  // them unless Batch::read_only(); offsets and shapes are in main memory all the same.
  bool on_device = false;
  bool text = false;  // of kind bytes, and each row is UTF-8
  std::uint32_t ndim = 0;
  std::array<std::int64_t, wire::kMaxRank + 1> dims{};  // rows first; -1 where rows differ
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;  // of the values that are there
  // Ragged: first element of each row; bytes: first byte of each row; rows + 1 of them. Else null.
  const std::int64_t* offsets = nullptr;
  const std::int64_t* shapes = nullptr;  // ragged: rows x (ndim - 1)

  std::span<const std::int64_t> shape() const { return {dims.data(), ndim}; }
};

// A finished batch. A cheap handle: copies share one lease, which ends when the last handle and the
// last owner() of a field that was not copied are gone, on whatever thread that is. Ending it is a
// no-op in a forked child and after the connection was lost. Reading is thread-safe; the memory is
// read-only, and a forked child must not touch it.
class SPDLD_API Batch {
 public:
  std::uint64_t epoch() const;
  std::uint64_t step() const;  // index in the epoch of the global batch
  std::uint64_t rows() const;
  std::uint32_t pipeline_version() const;
  // Names the listing and the order that indices() are of.
  const std::string& order_digest() const;

  // The position after this batch. Save it where other batches have been read since.
  const Cursor& state() const;
  // Dataset index of what is in each row; empty if the pipeline gives none.
  std::span<const std::int64_t> indices() const;
  // 1 per row, or 0 for one that was substituted, rejected or is padding; empty likewise.
  std::span<const std::uint8_t> valid() const;

  std::span<const TensorView> fields() const;                 // meta fields too
  const TensorView* find(std::string_view name) const;        // null: there is no such field
  const TensorView& operator[](std::string_view name) const;  // throws PipelineError
  // One row of a field of kind bytes. Throws PipelineError.
  std::string_view text(std::string_view name, std::uint64_t row) const;

  // The CUDA device, as this process counts them, that large fields lie on; -1: main memory.
  std::int32_t device() const;
  // Whether these fields lie in memory of the daemon's, which others may read as well: a kernel
  // that writes to them fails.
  bool read_only() const;
  // Work that the stream is given from now on finds the values of such fields there. They stay as
  // they are until the stream has done all that it was given before the batch and the last owner()
  // of these fields were let go of.
  // `stream` is a CUstream; 0 and 1 are the legacy default stream, 2 is that of the thread. Throws
  // LeaseError while the stream is captured into a graph.
  void make_ready(std::uintptr_t stream) const;
  // The same of a stream that waits for the values in its own way: for another one that
  // make_ready() was called for.
  void record_stream(std::uintptr_t stream) const;

  // Keeps the memory behind one of fields() alive: the lease, the device memory, or the copy alone.
  std::shared_ptr<const void> owner(const TensorView& field) const;

  // The field's values in a private copy-on-write view: writes stay in this process, cost a page
  // each, and vanish when the lease ends. For a field that was copied, the copy itself. Throws
  // LeaseError where the kind of memory cannot give such a view (huge pages, a device).
  std::byte* private_data(const TensorView& field) const;

  // The same batch in this process's own main memory: it holds no lease. One that lies on a device
  // is waited for, and so is what the streams that it was handed to do with it. Throws LeaseError
  // if released, or while one of these is captured into a graph, DeviceError if the device fails.
  Batch copy() const;

  // Ends the lease now. Throws LeaseError while other handles or owners are there. Device memory is
  // filled again when the streams are through that it was handed to.
  void release();
  bool released() const;

  explicit Batch(std::shared_ptr<client::BatchState> state);

 private:
  std::shared_ptr<client::BatchState> state_;
};

}  // namespace spdld
