// SPDX-License-Identifier: Apache-2.0
#include "control/call.h"

#include <fmt/format.h>

#include "base/text/utf8.h"

namespace spdld::control {
namespace {

// A message travels as an HTTP/2 header: what is longer than its limit would fail the call in
// another way.
constexpr std::size_t kMaxMessageBytes = 6000;

}  // namespace

Status LongCalls::run(const job::Caller& caller, const std::function<Status()>& call) {
  {
    MutexLock lock(mutex_);
    const auto own = per_uid_.find(caller.uid);
    const int of_uid = own == per_uid_.end() ? 0 : own->second;
    if (of_uid >= max_per_uid_ || (running_ >= max_ && !trusted_.contains(caller.uid))) {
      return Status(
          Code::kResourceExhausted,
          fmt::format(
              "too many long calls (apply, rollback, validate, explain, preview, show, "
              "watch, job create) are running: {}, {} of them of uid {}; at most {} and {} may: "
              "try again when one has ended",
              running_, of_uid, caller.uid, max_, max_per_uid_));
    }
    ++running_;
    ++per_uid_[caller.uid];
  }
  struct Leave {
    LongCalls& calls;
    uid_t uid;
    ~Leave() {
      MutexLock lock(calls.mutex_);
      --calls.running_;
      if (--calls.per_uid_[uid] == 0) calls.per_uid_.erase(uid);
    }
  } leave{*this, caller.uid};
  return call();
}

std::map<uid_t, int> LongCalls::users() const {
  MutexLock lock(mutex_);
  return per_uid_;
}

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message = status.message();
  if (message.size() > kMaxMessageBytes) message = message.substr(0, kMaxMessageBytes) + " ...";
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), utf8(message));
}

Result<job::Caller> caller_of(const grpc::ServerContext& context, const Peers& peers) {
  const std::string peer = context.peer();
  const std::optional<job::Caller> caller = peers.find(peer);
  if (!caller) {
    return error(
        Code::kPermissionDenied,
        fmt::format("cannot tell who asks: connection '{}' was not accepted by the daemon", peer));
  }
  return *caller;
}

void fill(v1::Progress* message, std::uint64_t done, std::uint64_t total, std::string_view what) {
  message->set_done(done);
  message->set_total(total);
  message->set_what(utf8(what));
}

}  // namespace spdld::control
