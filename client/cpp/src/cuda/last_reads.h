// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>
#include <vector>

#include "cuda/device.h"

namespace spdld::client::cuda {

// A stream that reads a batch, so that any thread can name it.
struct Reader {
  CUstream stream = nullptr;
  std::thread::id thread = {};  // that the batch was handed to it on

  // One thread cannot name another one's default stream. The legacy one waits for it.
  CUstream seen_from_here() const;
  bool is_same(const Reader& other) const;
};

// The work that streams still had to do with a batch when it was let go of. All of it must be over
// before the memory is filled again. Owned by one thread at a time, which has a Current. Its events
// go with it.
class LastReads {
 public:
  LastReads() = default;
  explicit LastReads(std::vector<Reader> readers) : unnoted_(std::move(readers)) {}

  // Records where the streams are that it has no event of yet, unless they are through by now.
  // False: one of them is being captured, and an event would become part of the graph; ask again.
  // Throws DeviceError, after which it may be asked again, too.
  bool note(Device& device);
  bool is_noted() const { return unnoted_.empty(); }
  // Nothing is to be waited for, and the driver need not be asked about it.
  bool is_none() const { return unnoted_.empty() && events_.empty(); }

  // These are about what is noted.
  void wait_on(const Device& device, CUstream stream) const;  // has the stream wait
  bool is_over(const Device& device);                         // throws DeviceError
  void wait(const Device& device) const;                      // a device that failed reads nothing

 private:
  std::vector<EventPtr> events_;
  std::vector<Reader> unnoted_;
};

}  // namespace spdld::client::cuda
