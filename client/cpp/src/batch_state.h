// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "channel.h"
#include "device_copies.h"
#include "mapping.h"
#include "spdld/batch.h"
#include "spdld/wire.h"

namespace spdld::client {

// Fields up to this size are copied when a batch is handed out, so that keeping them pins nothing.
inline constexpr std::uint64_t kCopyBytes = 64 * 1024;

// How batches of one version lie in their slots, as checked when the daemon told it.
struct Schema {
  std::uint32_t id = 0;
  std::uint32_t pipeline_version = 0;
  std::string order_digest = {};  // as was told before it
  std::vector<wire::FieldLayout> fields = {};
  std::vector<TensorView> views = {};  // of each field what is the same in all batches
};

// The right to read one slot. Ends once: by end(), or with the last that shares it. Any thread.
class Lease {
 public:
  Lease(std::shared_ptr<Channel> channel, std::shared_ptr<Mapping> mapping,
        const wire::BatchFrame& frame);
  ~Lease() { end(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  void end();
  // As end(), but the daemon is not told: of a connection that ends, a batch that nobody has seen.
  void forget();
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  const std::byte* slot() const { return mapping_->base() + offset_; }
  std::byte* private_slot();
  Mapping& mapping() const { return *mapping_; }

 private:
  const std::shared_ptr<Channel> channel_;
  const std::shared_ptr<Mapping> mapping_;
  const std::uint64_t id_;
  const std::uint64_t offset_;
  const std::uint64_t bytes_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> has_private_view_{false};
};

// Offsets and shapes of fields, as they were checked.
using Layout = std::vector<std::vector<std::int64_t>>;

// What the handles of one batch share.
struct BatchState {
  std::shared_ptr<Lease> lease;         // none: it was handed out, and no field lies in the slot
  std::shared_ptr<DeviceBatch> device;  // none: no field lies on a device
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<std::byte[]> copies;
  std::shared_ptr<const Schema> schema;  // the fields' names point into it
  std::vector<TensorView> fields;
  std::span<const std::int64_t> indices;
  std::span<const std::uint8_t> valid;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t rows = 0;
  Cursor behind = {};  // known once it is handed out
};

// Checks a frame's layout of fields; null, and `why` says so, when it makes no sense. Batches of it
// are of the order that `order_digest` names.
std::shared_ptr<const Schema> read_schema(std::span<const std::byte> frame,
                                          const std::string& order_digest, std::string& why);

// How the values of a batch's large fields reach its reader.
struct Delivery {
  bool is_copied = false;  // from the slot, to the loader's device
  // Fields that are kFieldOnDevice lie here; null: in no batch of that kind.
  const std::byte* on_device = nullptr;
  std::uint64_t device_bytes = 0;
};

// Makes the batch that a frame announces. Throws ConnectionError when frame and memory disagree;
// the lease then ends.
std::shared_ptr<BatchState> make_batch(std::shared_ptr<Lease> lease,
                                       std::shared_ptr<const Schema> schema,
                                       const wire::BatchFrame& frame, const Delivery& delivery);

// Something else keeps the lease, too: it is no user that forbids Batch::release().
void share_lease(BatchState& state);

// The batch has a reader. Its lease ends unless a field lies in the slot; not before, as the daemon
// counts the batch as read then.
void hand_out(BatchState& state);

// The batch has found no reader, and its connection ends.
void leave_unread(BatchState& state);

// The same batch in main memory of its own, without a lease. Its lease must not have ended. Throws
// as DeviceBatch::read().
std::shared_ptr<BatchState> copy_of(const BatchState& state);

}  // namespace spdld::client
