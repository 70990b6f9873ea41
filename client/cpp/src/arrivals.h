// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <variant>

#include "announced.h"
#include "batch_state.h"
#include "link.h"
#include "loader_device.h"
#include "spdld/wire.h"
#include "waiting.h"

namespace spdld::client {

// A batch, an epoch's end or a reset that came over a link.
struct Arrival {
  std::variant<wire::BatchFrame, wire::EpochEndFrame, wire::ResetFrame> frame;
  // Of a batch alone: the batch, and the facts of its pipeline that the daemon had told by then.
  std::shared_ptr<BatchState> batch = nullptr;
  std::shared_ptr<const Facts> facts = nullptr;
  std::uint32_t facts_number = 0;
  bool is_begun = false;  // its copy to a device, if it needs one
  bool by_ipc = false;    // the daemon brought it there
};

// What comes over a link, in its order. With a device it queues here: the copies of batches that
// are to lie there are begun, up to two of them ahead of the reader, and the leases of those that
// were read there end. Without one nothing is taken ahead. Used by the loader's thread alone.
class Arrivals {
 public:
  // Both outlive it. Without a device batches stay in main memory.
  Arrivals(const LoaderOptions& options, LoaderDevice* device)
      : options_(options), device_(device) {}

  // Takes the next one; none while it is not there yet. Progress goes to `waiting`, if there is
  // one. An error of the link is thrown once all that came before it was taken. Throws LeaseError
  // where the reader holds all batches that may lie on the device, and DeviceError: neither takes
  // anything.
  std::optional<Arrival> next(Link& link, Waiting* waiting);
  // Forgets all that is there, and the link's end, and waits until the device reads no slot.
  void clear();
  // Likewise, of a link that ends: the daemon does not count as read what was not taken. Frees the
  // device memory that no batch lies in.
  void leave();
  bool empty() const { return queue_.empty(); }

  // Waits until a slot can be let go of. False: the device reads none.
  bool await_slot() { return device_ != nullptr && device_->copies->await_one(); }
  // Whether leases end while nothing arrives: next() sees to it.
  bool awaits_streams() const { return device_ != nullptr && device_->arenas->draining() > 0; }

 private:
  // Of the link; none while nothing is there.
  std::optional<Arrival> take(Link& link, Waiting* waiting);
  Arrival of_batch(const Link& link, const wire::BatchFrame& frame,
                   std::shared_ptr<BatchState> batch);
  // To the queue. False: nothing was there.
  bool take_ahead(Link& link, Waiting* waiting);
  void begin_copies(std::uint32_t credits);

  const LoaderOptions& options_;
  LoaderDevice* const device_;
  std::deque<Arrival> queue_;
  std::exception_ptr end_;  // of the link, behind the queue
  std::shared_ptr<const Facts> facts_;
  std::uint32_t facts_number_ = 0;
};

}  // namespace spdld::client
