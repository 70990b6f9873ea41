// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <variant>

#include "announced.h"
#include "batch_state.h"
#include "device_copies.h"
#include "link.h"
#include "spdld/wire.h"
#include "waiting.h"

namespace spdld::client {

// What came over a link and its reader has not taken yet. In order.
struct Arrival {
  std::variant<wire::BatchFrame, wire::EpochEndFrame, wire::ResetFrame> frame;
  // Of a batch: what it is, and what the daemon had said of its pipeline by then.
  std::shared_ptr<BatchState> batch = nullptr;
  std::shared_ptr<const Facts> facts = nullptr;
  std::uint32_t facts_number = 0;
  bool is_begun = false;  // its copy to a device
};

// Takes what a link brings, and begins the copies of batches that are to lie on a device, up to two
// of them ahead of the reader. Without a device nothing is taken ahead. Used by the loader's thread
// alone.
class Arrivals {
 public:
  // `options` outlives it. Throws DeviceError if the device that they name cannot be had.
  explicit Arrivals(const LoaderOptions& options);

  // What comes next of the link; null while that is not there yet. Progress goes to `waiting`, if
  // there is one. What the link throws is thrown once all that came before it was taken. Throws
  // LeaseError where the reader holds all batches that may lie on the device, and DeviceError; what
  // comes next is the same after these.
  Arrival* next(Link& link, Waiting* waiting);
  Arrival pop();
  // Forgets all that is there, and the link's end, and waits until the device reads no slot.
  void clear();
  // Likewise, of a link that ends: the daemon does not count as read what was not taken. Frees the
  // device memory that no batch lies in.
  void leave();
  bool empty() const { return queue_.empty(); }

  // Waits until a slot can be let go of. False: the device reads none.
  bool await_slot() { return copies_ != nullptr && copies_->await_one(); }
  const DeviceCopies* copies() const { return copies_.get(); }

 private:
  // False: nothing was there.
  bool take(Link& link, Waiting* waiting);
  void add_batch(Link& link, const wire::BatchFrame& frame);
  void begin_copies(std::uint32_t credits);
  // Lets go of slots that the device has read.
  void reap();

  const LoaderOptions& options_;
  const std::unique_ptr<DeviceCopies> copies_;  // null: batches stay in main memory
  std::deque<Arrival> queue_;
  std::exception_ptr end_;  // of the link, behind the queue
  std::shared_ptr<const Facts> facts_;
  std::uint32_t facts_number_ = 0;
};

}  // namespace spdld::client
