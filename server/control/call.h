// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "control/convert.h"
#include "control/peers.h"
#include "control/stop_signal.h"
#include "session/service.h"

// What every RPC does before and after its own work.
namespace spdld::control {

// Calls that hold a thread for long (apply, rollback, explain, preview, watch) are counted, so that
// neither one user nor all of them take every thread. Thread-safe.
class LongCalls {
 public:
  LongCalls(int max, int max_per_uid) : max_(max), max_per_uid_(max_per_uid) {}

  // Runs `call` unless too many are running: kResourceExhausted then.
  Status run(const session::Caller& caller, const std::function<Status()>& call)
      SPDLD_EXCLUDES(mutex_);

 private:
  const int max_;
  const int max_per_uid_;
  Mutex mutex_;
  int running_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::map<uid_t, int> per_uid_ SPDLD_GUARDED_BY(mutex_);
};

// What the gRPC services work with. Owned by ControlServer, which outlives every call.
struct Environment {
  session::Service& service;
  Peers& peers;
  LongCalls& long_calls;
  StopSignal& stop;
};

grpc::Status to_grpc(const Status& status);

// Who makes this call, by its connection.
Result<session::Caller> caller_of(const grpc::ServerContext& context, const Peers& peers);

// Runs `call(caller)`, which returns Status; nothing it throws gets out.
template <typename Call>
grpc::Status serve(const Environment& environment, grpc::ServerContext* context, Call&& call) {
  try {
    if (environment.stop.raised())
      return to_grpc(Status(Code::kUnavailable, "the daemon is stopping"));
    const Result<session::Caller> caller = caller_of(*context, environment.peers);
    if (!caller) return to_grpc(caller.error());
    return to_grpc(call(*caller));
  } catch (const std::exception& failure) {
    return to_grpc(Status(Code::kInternal, std::string("the daemon failed: ") + failure.what()));
  }
}

template <typename Call>
grpc::Status serve_long(const Environment& environment, grpc::ServerContext* context, Call&& call) {
  return serve(environment, context, [&](const session::Caller& caller) {
    return environment.long_calls.run(caller, [&] { return call(caller); });
  });
}

// Writes progress into a stream of `Response`, at most ten times a second. Tells the work to end
// when the caller is gone, its deadline has passed, or the daemon stops. `context`, `writer` and
// `environment` outlive what is returned, which one thread at a time may call.
template <typename Response>
session::Service::Progress progress_into(const Environment& environment,
                                         grpc::ServerContext* context,
                                         grpc::ServerWriter<Response>* writer) {
  using Clock = std::chrono::steady_clock;
  return [&environment, context, writer, next = Clock::time_point()](
             std::uint64_t done, std::uint64_t total, const std::string& what) mutable {
    if (context->IsCancelled() || environment.stop.raised()) return false;
    const Clock::time_point now = Clock::now();
    if (now < next) return true;
    next = now + std::chrono::milliseconds(100);
    Response response;
    fill(response.mutable_progress(), done, total, what);
    return writer->Write(response);
  };
}

}  // namespace spdld::control
