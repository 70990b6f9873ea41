// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <set>

#include "control/messages.h"
#include "control/services.h"
#include "spdld/v1/control.grpc.pb.h"

namespace spdld::control {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kMinIntervalMs = 100;
constexpr std::uint32_t kMaxIntervalMs = 60'000;
constexpr std::uint32_t kDefaultIntervalMs = 1000;
constexpr milliseconds kLookAgain{100};  // how late a watcher's going is noticed

class Stats final : public v1::Stats::Service {
 public:
  explicit Stats(const Environment& environment) : environment_(environment) {}

  grpc::Status Get(grpc::ServerContext* context, const v1::GetStatsRequest* request,
                   v1::StatsSnapshot* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) {
      take(caller, *request, response);
      return Status();
    });
  }

  grpc::Status Users(grpc::ServerContext* context, const v1::ListUsersRequest*,
                     v1::ListUsersResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) {
      const std::map<uid_t, std::size_t> connections = environment_.peers.users();
      const std::map<uid_t, int> calls = environment_.long_calls.users();
      std::set<uid_t> connected;
      for (const auto& [uid, count] : connections) connected.insert(uid);
      for (session::UserView& user : environment_.service.users(caller, connected)) {
        const auto own = connections.find(user.uid);
        const auto calling = calls.find(user.uid);
        user.control_connections = {.used = own == connections.end() ? 0 : own->second,
                                    .limit = environment_.peers.max_per_uid()};
        user.long_calls = {
            .used = calling == calls.end() ? 0 : static_cast<std::uint64_t>(calling->second),
            .limit = static_cast<std::uint64_t>(environment_.long_calls.max_per_uid())};
        fill(response->add_users(), user);
      }
      return Status();
    });
  }

  grpc::Status Metrics(grpc::ServerContext* context, const v1::MetricsRequest*,
                       v1::MetricsResponse* response) override {
    return serve(environment_, context, [&](const job::Caller& caller) {
      if (!environment_.metrics)
        return Status(Code::kUnimplemented, "this daemon tells no metrics");
      response->set_text(environment_.metrics(caller));
      return Status();
    });
  }

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchStatsRequest* request,
                     grpc::ServerWriter<v1::StatsSnapshot>* writer) override {
    return serve_long(environment_, context, [&](const job::Caller& caller) {
      const std::uint32_t asked_ms = request->interval_ms();
      const std::uint32_t interval_ms = asked_ms == 0 ? kDefaultIntervalMs : asked_ms;
      if (interval_ms < kMinIntervalMs || interval_ms > kMaxIntervalMs) {
        return Status(Code::kInvalidArgument,
                      fmt::format("interval_ms is {}; it must be {} to {}, or 0 for {}", asked_ms,
                                  kMinIntervalMs, kMaxIntervalMs, kDefaultIntervalMs));
      }
      while (true) {
        v1::StatsSnapshot snapshot;
        v1::GetStatsRequest wanted;
        wanted.set_stages(request->stages());
        wanted.set_failures(request->failures());
        take(caller, wanted, &snapshot);
        if (!writer->Write(snapshot)) return Status();
        const auto next = std::chrono::steady_clock::now() + milliseconds(interval_ms);
        while (true) {
          const auto left =
              std::chrono::ceil<milliseconds>(next - std::chrono::steady_clock::now());
          if (left <= milliseconds::zero()) break;
          if (environment_.stop.wait_for(std::min(left, kLookAgain)))
            return Status(Code::kUnavailable, "the daemon is stopping");
          if (context->IsCancelled()) return Status();
        }
      }
    });
  }

 private:
  void take(const job::Caller& caller, const v1::GetStatsRequest& wanted,
            v1::StatsSnapshot* snapshot) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    snapshot->set_taken_unix_ms(
        static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(now).count()));
    session::Service& service = environment_.service;
    fill(snapshot->mutable_daemon(), service.daemon(caller));
    if (wanted.stages()) {
      for (const auto& view :
           wanted.ended() ? service.ended_stages(caller) : service.stages(caller))
        fill(snapshot->add_stages(), view);
    }
    if (wanted.failures()) {
      for (const auto& view : service.failures(caller, wanted.job()))
        fill(snapshot->add_failures(), view);
    }
  }

  const Environment environment_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_stats(const Environment& environment) {
  return std::make_unique<Stats>(environment);
}

}  // namespace spdld::control
