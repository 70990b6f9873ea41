// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "base/users/trusted_users.h"
#include "control/metrics_text.h"
#include "control/peers.h"
#include "control/stop_signal.h"
#include "session/service.h"
#include "spdld/v1/control.pb.h"

// What every RPC does before and after its own work.
namespace spdld::control {

// Bounds, per user and in all, the calls that occupy a thread for long because they list, decode or
// watch; so short calls always find a thread. Owned by ControlServer; thread-safe.
class LongCalls {
 public:
  // `max` does not hold for `trusted`.
  LongCalls(int max, int max_per_uid, TrustedUsers trusted = TrustedUsers())
      : max_(max), max_per_uid_(max_per_uid), trusted_(std::move(trusted)) {}

  // Runs `call` unless too many are running: kResourceExhausted then.
  Status run(const job::Caller& caller, const std::function<Status()>& call) SPDLD_EXCLUDES(mutex_);
  // How many are running, by user; those who have none are left out.
  std::map<uid_t, int> users() const SPDLD_EXCLUDES(mutex_);
  int max_per_uid() const { return max_per_uid_; }

 private:
  const int max_;
  const int max_per_uid_;
  const TrustedUsers trusted_;
  mutable Mutex mutex_;
  int running_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::map<uid_t, int> per_uid_ SPDLD_GUARDED_BY(mutex_);
};

// What the gRPC services work with. Owned by ControlServer, which outlives every call.
struct Environment {
  session::Service& service;
  Peers& peers;
  LongCalls& long_calls;
  StopSignal& stop;
  const MetricsText metrics;  // none: nothing tells them
};

grpc::Status to_grpc(const Status& status);

// Who makes this call, by its connection.
Result<job::Caller> caller_of(const grpc::ServerContext& context, const Peers& peers);

// Runs `call(caller)`, which returns Status; nothing it throws gets out.
template <typename Call>
grpc::Status serve(const Environment& environment, grpc::ServerContext* context, Call&& call) {
  try {
    if (environment.stop.raised())
      return to_grpc(Status(Code::kUnavailable, "the daemon is stopping"));
    const Result<job::Caller> caller = caller_of(*context, environment.peers);
    if (!caller) return to_grpc(caller.error());
    return to_grpc(call(*caller));
  } catch (const std::exception& failure) {
    return to_grpc(Status(Code::kInternal, std::string("the daemon failed: ") + failure.what()));
  }
}

template <typename Call>
grpc::Status serve_long(const Environment& environment, grpc::ServerContext* context, Call&& call) {
  return serve(environment, context, [&](const job::Caller& caller) {
    return environment.long_calls.run(caller, [&] { return call(caller); });
  });
}

// Tells the work to end when the caller is gone, its deadline has passed, or the daemon stops: the
// progress of a call that has one answer. `context` and `environment` outlive what is returned.
inline session::Service::Progress until_cancelled(const Environment& environment,
                                                  grpc::ServerContext* context) {
  return [&environment, context](std::uint64_t, std::uint64_t, const std::string&,
                                 const session::RunnerPools&) {
    return !context->IsCancelled() && !environment.stop.raised();
  };
}

void fill(v1::Progress* message, std::uint64_t done, std::uint64_t total, std::string_view what);

// The same, and writes progress into a stream of `Response`, at most ten times a second. `writer`
// outlives what is returned, too, which one thread at a time may call.
template <typename Response>
session::Service::Progress progress_into(const Environment& environment,
                                         grpc::ServerContext* context,
                                         grpc::ServerWriter<Response>* writer) {
  using Clock = std::chrono::steady_clock;
  return [wanted = until_cancelled(environment, context), writer, next = Clock::time_point()](
             std::uint64_t done, std::uint64_t total, const std::string& what,
             const session::RunnerPools& runners) mutable {
    if (!wanted(done, total, what, runners)) return false;
    const Clock::time_point now = Clock::now();
    if (now < next) return true;
    next = now + std::chrono::milliseconds(100);
    Response response;
    fill(response.mutable_progress(), done, total, what);
    response.mutable_progress()->mutable_runners()->Add(runners.begin(), runners.end());
    return writer->Write(response);
  };
}

// The same for work that people wait for: each new text is written once. A caller that reads
// nothing cannot hold up the work, as all its texts fit into what gRPC takes before it waits for a
// reader.
template <typename Response>
session::Service::Progress phases_into(const Environment& environment, grpc::ServerContext* context,
                                       grpc::ServerWriter<Response>* writer) {
  return [wanted = until_cancelled(environment, context), writer, last = std::string()](
             std::uint64_t done, std::uint64_t total, const std::string& what,
             const session::RunnerPools& runners) mutable {
    if (!wanted(done, total, what, runners)) return false;
    if (what == last) return true;
    last = what;
    Response response;
    fill(response.mutable_progress(), done, total, what);
    response.mutable_progress()->mutable_runners()->Add(runners.begin(), runners.end());
    return writer->Write(response);
  };
}

}  // namespace spdld::control
