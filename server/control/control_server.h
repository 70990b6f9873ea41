// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "base/status.h"
#include "base/users/trusted_users.h"
#include "control/metrics_text.h"
#include "posix/unique_fd.h"
#include "session/service.h"

namespace spdld::control {

struct ControlOptions {
  std::size_t max_connections = 256;
  std::size_t max_connections_per_uid = 64;
  int max_threads = 64;
  int max_long_calls = 32;  // LongCalls
  int max_long_calls_per_uid = 8;
  TrustedUsers trusted{};  // get in however many others are there
  MetricsText metrics{};   // of Stats.Metrics, which is refused without it
};

// The gRPC face of the daemon. Owned by the daemon; `service` outlives it. It accepts connections
// itself, asks the kernel who opened them, and then hands them to gRPC, which runs calls on threads
// of its own; health (grpc.health.v1) and reflection are served too.
//
// Threads: "spdld-control" waits on the listener; gRPC's run the calls. start, stop and the
// destructor are for one thread. States: serving, then stopped for good. A connection that cannot
// be accepted is logged and closed; the others do not notice.
class ControlServer {
 public:
  // `listener` is a bound Unix stream socket in the listening state, of the daemon's own making or
  // inherited from systemd.
  static Result<std::unique_ptr<ControlServer>> start(UniqueFd listener, session::Service& service,
                                                      const ControlOptions& options = {});
  ~ControlServer();

  // Takes no more connections and calls, tells streams and long calls to end, and after `grace`
  // cancels what is still running. Returns when no call runs any more: that is after `grace` only
  // if the service does not heed its Progress. Idempotent.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdld::control
