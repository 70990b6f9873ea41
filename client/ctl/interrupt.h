// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdld::ctl {

// While it lives, SIGINT and SIGTERM only set a flag. One at a time, on the main thread.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
};

// Thrown out of a wait when requested() became true in it.
struct Interrupted {};

}  // namespace spdld::ctl
