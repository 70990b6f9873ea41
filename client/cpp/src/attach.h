// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "launch_env.h"
#include "link.h"
#include "spdld/loader.h"
#include "waiting.h"

namespace spdld::client {

// What went wrong since the daemon was last of use.
class Outage {
 public:
  explicit Outage(std::string why = {}) : why_(std::move(why)) {}

  // The connection was lost, or an attempt at it failed. One that held for a while was a success,
  // and what follows is another outage.
  void lost(const LinkLost& lost);

 private:
  friend class Attacher;
  static constexpr std::chrono::milliseconds kHeld{1'000};

  std::uint64_t attempts_ = 0;
  std::string why_;
  bool answered_ = true;  // the last attempt found somebody
  bool denied_ = false;   // and this of it
  SteadyTime since_ = std::chrono::steady_clock::now();
  SteadyTime attempted_ = since_;
  Backoff backoff_;
};

// Connects and attaches, again and again until that succeeds, is refused, or takes too long. Owned
// by the loader's stream; its thread alone.
class Attacher {
 public:
  // `options` and `device` outlive it; `device` may be null.
  Attacher(const LoaderOptions& options, std::string address, DeviceArenas* device)
      : options_(options), address_(std::move(address)), device_(device) {}

  const std::string& address() const { return address_; }

  // `known`: what an earlier attach told, if there was one; its place is then gone on with. `from`:
  // where to begin; none is for the options to say. Throws ConnectionError, saying what was tried.
  std::unique_ptr<Link> attach(const Placement& place, const Attached* known,
                               const std::optional<Cursor>& from, Waiting& waiting,
                               Outage& outage) const;

 private:
  AttachWish wish(const Placement& place, const Attached* known,
                  const std::optional<Cursor>& from) const;
  [[noreturn]] void give_up(const Outage& outage, const std::string& lost_why,
                            const Attached* known, const std::optional<Cursor>& from) const;
  // Ends with what `this ends in 5 s` goes on.
  std::string outage_text(const Outage& outage, const std::string& lost_why) const;

  const LoaderOptions& options_;
  const std::string address_;
  DeviceArenas* const device_;
};

}  // namespace spdld::client
