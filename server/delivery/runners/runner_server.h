// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/users/credentials.h"
#include "delivery/admission.h"
#include "delivery/runners/runner_pool.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

struct RunnerServerOptions {
  std::string address = {};  // runtime_dir, which runners are started with
  AdmissionBounds connections{.in_all = 4096, .reserved = 256, .per_user = 1024};
  CellSizes cells{.input = 1 << 20, .answers = 1 << 20};  // of a child, to begin with
  std::chrono::milliseconds hello_timeout{10'000};
  std::chrono::milliseconds linger{30'000};    // of a pool that nobody holds
  std::chrono::milliseconds patience{10'000};  // with a supervisor that is to end a child
  std::function<Result<Peer>(int socket)> peer = peer_of;  // so that tests are several users
};

// The runner socket: users' processes that run their own functions on rows (spdld/runner.h). Has a
// thread of its own, spdld-run. A runner serves pools of its own user alone: those of others look
// to it as if there were none. What a runner says is checked, and whoever says anything else is
// hung up on. Thread-safe.
class RunnerServer {
 public:
  // `budget` outlives what open() gives.
  static Result<std::unique_ptr<RunnerServer>> start(UniqueFd listener, RunnerServerOptions options,
                                                     ArenaBudget& budget);
  ~RunnerServer();
  RunnerServer(const RunnerServer&) = delete;
  RunnerServer& operator=(const RunnerServer&) = delete;

  // Carries rows to the function, in the processes of this user. Equal specs of a user share them.
  // Whoever lets go of it while rows are out gets them back with kCancelled. May outlive the
  // server.
  std::shared_ptr<RowCaller> open(uid_t uid, const CallSpec& spec) SPDLD_EXCLUDES(mutex_);

  // All children that have been there of supervisors that are.
  std::vector<RunnerView> runners() const SPDLD_EXCLUDES(mutex_);
  std::uint64_t protocol_errors() const { return protocol_errors_.load(std::memory_order_relaxed); }

  // All rows come back; runners are hung up on, and look for the next daemon.
  void stop() SPDLD_EXCLUDES(mutex_);

 private:
  struct Runner;
  using RunnerPtr = std::shared_ptr<Runner>;

  RunnerServer(UniqueFd listener, RunnerServerOptions options, ArenaBudget& budget,
               std::shared_ptr<EventLoop> loop);
  void accept_ready();
  void admit(UniqueFd socket);
  void ready(std::uint64_t id);
  // False: the connection has ended.
  bool read_frames(const RunnerPtr& runner);
  Status take(const RunnerPtr& runner, Channel::Frame frame);
  Status greet_supervisor(const RunnerPtr& runner, Channel::Frame frame);
  Status greet_child(const RunnerPtr& runner, Channel::Frame frame);
  void refuse(const RunnerPtr& runner, const Status& why);
  void forget(std::uint64_t id);
  std::shared_ptr<RunnerPool> pool_for(const Channel& channel, const char* key) const
      SPDLD_EXCLUDES(mutex_);
  void let_go(const std::string& key) SPDLD_EXCLUDES(mutex_);
  void close_all() SPDLD_EXCLUDES(mutex_);

  const UniqueFd listener_;
  const RunnerServerOptions options_;
  ArenaBudget& budget_;
  const std::shared_ptr<EventLoop> loop_;
  Admission admission_;
  // The loop's thread alone.
  std::map<std::uint64_t, RunnerPtr> runners_;
  std::uint64_t next_id_ = 1;
  std::vector<std::byte> buffer_;
  // Relaxed: a count by itself.
  std::atomic<std::uint64_t> protocol_errors_{0};
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<RunnerPool>> pools_ SPDLD_GUARDED_BY(mutex_);
  bool stopped_ SPDLD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace spdld::delivery
