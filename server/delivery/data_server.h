// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/users/user_bytes.h"
#include "delivery/admission.h"
#include "delivery/connection.h"
#include "delivery/data_service.h"
#include "delivery/event_loop.h"
#include "delivery/frames.h"
#include "delivery/liveness.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

struct DataServerOptions {
  std::string server_name = "spdld";  // name and version, told in Welcome
  // Connections count until nothing of theirs is left: also those that are closed while their
  // process, which lives, may still read what it was lent.
  AdmissionBounds connections{};
  std::uint64_t max_unattached_bytes_per_uid = 16u << 20;  // pipelines before their attach's answer
  std::uint64_t max_unread_bytes_per_uid = 64u << 20;      // queued, as their consumers do not read
  std::chrono::milliseconds hello_timeout{10'000};         // from accept to Attach
  std::chrono::milliseconds linger{5'000};                 // for a last word to be read
};

// The data socket: accepts consumers, checks and dispatches their frames, notices their death. Owns
// one thread, the dispatcher, which never waits for a consumer. Garbage costs its sender the
// connection and is counted. Start it, stop it; it stops by itself when destroyed.
class DataServer {
 public:
  // Counted since the start.
  struct Stats {
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;  // over a limit, another protocol
    std::uint64_t protocol_errors = 0;
    std::uint64_t overflows = 0;
    std::uint64_t hello_timeouts = 0;
    std::uint64_t accept_failures = 0;    // no file descriptors left
    std::uint64_t connections = 0;        // now
    std::uint64_t watched_processes = 0;  // now: disconnected, alive, holding retired slots
  };

  // `listener` is of listen_unix() or activated_sockets(). `service` and `liveness` outlive it.
  static Result<std::unique_ptr<DataServer>> start(UniqueFd listener, DataServerOptions options,
                                                   Liveness& liveness, DataService& service);
  ~DataServer();
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  // Any thread. The work is done on the dispatcher's thread, and dropped once the server stops.
  void post(EventLoop::Task task) { loop_->post(std::move(task)); }
  void run_after(std::chrono::milliseconds delay, EventLoop::Task task) {
    loop_->run_after(delay, std::move(task));
  }
  Stats stats() const;
  // What a user has of each thing whose limit is in the options.
  struct Use {
    std::uint64_t connections = 0;
    std::uint64_t unattached_bytes = 0;
    std::uint64_t unread_bytes = 0;
  };
  std::map<uid_t, Use> users() const;
  const DataServerOptions& options() const { return options_; }
  // Of this daemon's life: consumers see from it that they meet another one.
  std::span<const std::uint8_t, 16> generation() const { return generation_; }

  // Says Bye(kShutdown) to all, closes, and joins the dispatcher; each connection gets its
  // closed(). Idempotent. Not from the dispatcher's thread.
  void stop();

 private:
  struct Consumer;

  DataServer(UniqueFd listener, DataServerOptions options, Liveness& liveness, DataService& service,
             std::unique_ptr<EventLoop> loop);

  // The dispatcher's thread, all of them.
  void accept_ready();
  void admit(UniqueFd socket);
  Status watch(Consumer& consumer, int socket);
  void socket_ready(std::uint64_t id, std::uint32_t events);
  // False: the consumer hung up.
  bool read_frames(Consumer& consumer);
  void receive(Consumer& consumer, std::size_t bytes);
  bool reject(Consumer& consumer, const Status& status, CloseCause cause);
  void serve_output(std::uint64_t id);
  // Nobody reads any more what the consumer was lent.
  void consumer_gone(std::uint64_t id);
  void check_greeted(std::uint64_t id);
  void close(Consumer& consumer, CloseCause cause);
  bool keep_listening(Consumer& consumer, UniqueFd socket);
  void parting_ready(std::uint64_t id);
  void forget(Consumer& consumer);
  void close_all();
  Consumer* find(std::uint64_t id);

  const UniqueFd listener_;
  const DataServerOptions options_;
  Liveness& liveness_;
  DataService& service_;
  std::array<std::uint8_t, 16> generation_{};
  const std::shared_ptr<EventLoop> loop_;
  Admission admission_;
  const std::shared_ptr<UserBytes> unattached_;
  const std::shared_ptr<UserBytes> unread_;
  // The dispatcher alone.
  std::unordered_map<std::uint64_t, std::shared_ptr<Consumer>> consumers_;
  std::uint64_t next_id_ = 1;
  std::vector<std::byte> buffer_;

  // Written by the dispatcher, read by stats() anywhere; each stands alone, so relaxed will do.
  struct Counters {
    std::atomic<std::uint64_t> accepted{0};
    std::atomic<std::uint64_t> refused{0};
    std::atomic<std::uint64_t> protocol_errors{0};
    std::atomic<std::uint64_t> overflows{0};
    std::atomic<std::uint64_t> hello_timeouts{0};
    std::atomic<std::uint64_t> accept_failures{0};
    std::atomic<std::uint64_t> connections{0};
    std::atomic<std::uint64_t> watched_processes{0};
  };
  Counters counters_;
  std::thread thread_;
};

}  // namespace spdld::delivery
