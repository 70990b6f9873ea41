// SPDX-License-Identifier: Apache-2.0
#include "delivery/data_server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/random_bytes.h"
#include "delivery/dialogue.h"
#include "delivery/peer.h"

namespace spdld::delivery {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::uint64_t kAcceptFailuresPerLine = 100;  // of the log: some ten seconds
constexpr int kFramesPerTurn = 64;                     // then the others have their turn

// Returns what it was.
std::uint64_t bump(std::atomic<std::uint64_t>& counter, std::int64_t by = 1) {
  return counter.fetch_add(static_cast<std::uint64_t>(by), std::memory_order_relaxed);
}

std::uint64_t read(const std::atomic<std::uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

// What the dispatcher knows of one connection.
struct DataServer::Consumer {
  Consumer(ConnectionPtr end, Dialogue words)
      : connection(std::move(end)), dialogue(std::move(words)) {}

  const ConnectionPtr connection;
  Dialogue dialogue;
  UniqueFd witness;      // readable or hung up once the process has ended; none: nothing tells
  UniqueFd parting;      // the socket after we ended the connection: it may say its last word
  bool open = true;      // the socket is watched
  bool writing = false;  // waits for room in the socket
  bool lingers = false;  // ends as soon as its last word has gone out, or after options.linger
  CloseCause cause = CloseCause::kServer;  // if it is we who end it
};

Result<std::unique_ptr<DataServer>> DataServer::start(UniqueFd listener, DataServerOptions options,
                                                      Liveness& liveness, DataService& service) {
  SPDLD_ASSIGN(auto loop, EventLoop::create());
  std::unique_ptr<DataServer> server(
      new DataServer(std::move(listener), std::move(options), liveness, service, std::move(loop)));
  SPDLD_TRY(server->loop_->watch(server->listener_.get(), EPOLLIN,
                                 [raw = server.get()](std::uint32_t) { raw->accept_ready(); }));
  server->thread_ = std::thread([raw = server.get()] {
    ::pthread_setname_np(::pthread_self(), "spdld-data");
    raw->loop_->run();
  });
  return server;
}

DataServer::DataServer(UniqueFd listener, DataServerOptions options, Liveness& liveness,
                       DataService& service, std::unique_ptr<EventLoop> loop)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      liveness_(liveness),
      service_(service),
      loop_(std::move(loop)),
      admission_(options_.connections),
      unattached_(std::make_shared<UserBytes>(options_.max_unattached_bytes_per_uid)),
      unread_(std::make_shared<UserBytes>(options_.max_unread_bytes_per_uid)),
      buffer_(wire::kMaxFrameBytes) {
  random_bytes(std::as_writable_bytes(std::span(generation_)));
}

DataServer::~DataServer() { stop(); }

void DataServer::stop() {
  if (!thread_.joinable()) return;
  loop_->post([this] { close_all(); });
  loop_->stop();
  thread_.join();
}

DataServer::Stats DataServer::stats() const {
  return {.accepted = read(counters_.accepted),
          .refused = read(counters_.refused),
          .protocol_errors = read(counters_.protocol_errors),
          .overflows = read(counters_.overflows),
          .hello_timeouts = read(counters_.hello_timeouts),
          .accept_failures = read(counters_.accept_failures),
          .connections = read(counters_.connections),
          .watched_processes = read(counters_.watched_processes)};
}

std::map<uid_t, DataServer::Use> DataServer::users() const {
  std::map<uid_t, Use> users;
  for (const auto& [uid, count] : admission_.users()) users[uid].connections = count;
  for (const auto& [uid, bytes] : unattached_->used()) users[uid].unattached_bytes = bytes;
  for (const auto& [uid, bytes] : unread_->used()) users[uid].unread_bytes = bytes;
  return users;
}

void DataServer::accept_ready() {
  for (int i = 0; i < kFramesPerTurn; ++i) {
    auto socket = accept_connection(listener_.get());
    if (socket) {
      admit(std::move(*socket));
      continue;
    }
    if (socket.error().code() == Code::kUnavailable) return;
    // Out of file descriptors or memory: the consumer stays in the backlog and is asked in later.
    const std::uint64_t failures = bump(counters_.accept_failures);
    if (failures % kAcceptFailuresPerLine == 0)
      spdlog::warn("data socket: {}; consumers wait, and are asked in once it can be done",
                   socket.error().message());
    loop_->pause(listener_.get(), kAcceptPause, EPOLLIN, [this](std::uint32_t) { accept_ready(); });
    return;
  }
}

void DataServer::admit(UniqueFd socket) {
  const int fd = socket.get();
  const std::uint64_t id = next_id_++;
  auto peer = peer_of(fd);
  // The connection may outlive the server: what it wants then is forgotten.
  const uid_t uid = peer.value_or(Peer{}).uid;
  const auto end =
      std::make_shared<Connection>(id, std::move(socket), peer.value_or(Peer{}), unread_,
                                   [this, id, loop = std::weak_ptr<EventLoop>(loop_)] {
                                     if (const auto alive = loop.lock())
                                       alive->post([this, id] { serve_output(id); });
                                   });
  auto consumer = std::make_shared<Consumer>(
      end, Dialogue(end, service_, {.server_name = options_.server_name, .generation = generation_},
                    std::make_shared<UserBytes::Share>(unattached_, uid)));
  Connection& connection = *end;

  Status refusal = peer ? admission_.enter(uid) : peer.error();
  const bool entered = refusal.ok();
  if (entered) refusal = watch(*consumer, fd);
  if (!refusal.ok()) {
    if (entered) admission_.leave(uid);
    bump(counters_.refused);
    (void)connection.fail(refusal);
    (void)connection.close();
    return;
  }
  bump(counters_.accepted);
  bump(counters_.connections);
  consumers_.emplace(id, std::move(consumer));
  loop_->run_after(options_.hello_timeout, [this, id] { check_greeted(id); });
}

// What it says, and the end of its process.
Status DataServer::watch(Consumer& consumer, int socket) {
  const std::uint64_t id = consumer.connection->id();
  SPDLD_ASSIGN(consumer.witness, liveness_.watch(socket, consumer.connection->peer().pid));
  SPDLD_TRY(loop_->watch(socket, EPOLLIN | EPOLLRDHUP,
                         [this, id](std::uint32_t events) { socket_ready(id, events); }));
  if (!consumer.witness) return {};
  const Status watched = loop_->watch(consumer.witness.get(), EPOLLIN,
                                      [this, id](std::uint32_t) { consumer_gone(id); });
  if (!watched.ok()) loop_->unwatch(socket);
  return watched;
}

DataServer::Consumer* DataServer::find(std::uint64_t id) {
  const auto found = consumers_.find(id);
  return found == consumers_.end() ? nullptr : found->second.get();
}

void DataServer::check_greeted(std::uint64_t id) {
  Consumer* consumer = find(id);
  if (consumer == nullptr || !consumer->open || consumer->dialogue.attached()) return;
  if (reject(*consumer,
             Status(Code::kDeadlineExceeded,
                    fmt::format("the consumer did not attach within {} s of connecting",
                                std::chrono::duration<double>(options_.hello_timeout).count())),
             CloseCause::kServer)) {
    bump(counters_.hello_timeouts);
  }
}

void DataServer::socket_ready(std::uint64_t id, std::uint32_t events) {
  const auto found = consumers_.find(id);
  if (found == consumers_.end()) return;
  const std::shared_ptr<Consumer> consumer = found->second;  // closing it forgets it
  if (!consumer->open) return;
  if ((events & EPOLLOUT) != 0) serve_output(id);
  if (consumer->open && (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0 &&
      !read_frames(*consumer)) {
    close(*consumer, consumer->lingers ? consumer->cause : CloseCause::kHangUp);
  }
}

bool DataServer::read_frames(Consumer& consumer) {
  const int fd = consumer.open ? consumer.connection->socket() : consumer.parting.get();
  const bool was_open = consumer.open;
  bool was_reset = false;
  for (int i = 0; i < kFramesPerTurn && consumer.open == was_open; ++i) {
    const ssize_t got = ::recv(fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (got == 0) return false;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      // The other end closed with frames of ours unread. Its own last ones come after the error.
      if (errno != ECONNRESET || std::exchange(was_reset, true)) return false;
      continue;
    }
    const auto bytes = static_cast<std::size_t>(got);
    if (consumer.open) {
      receive(consumer, bytes);
    } else if (bytes <= buffer_.size()) {
      consumer.dialogue.take_last({buffer_.data(), bytes});
    }
  }
  return true;
}

// A frame, as long as it was, whatever there is of it.
void DataServer::receive(Consumer& consumer, std::size_t bytes) {
  const Status status =
      bytes > buffer_.size()
          ? Status(Code::kInvalidArgument,
                   fmt::format("frame of {} bytes; {} are allowed", bytes, buffer_.size()))
          : consumer.dialogue.take({buffer_.data(), bytes});
  if (status.ok()) return;
  const bool garbage = status.code() == Code::kInvalidArgument;
  if (reject(consumer, status, garbage ? CloseCause::kProtocol : CloseCause::kServer)) {
    bump(garbage ? counters_.protocol_errors : counters_.refused);
  }
}

// Says why, and ends the connection once that has gone out. False: it is ending already.
bool DataServer::reject(Consumer& consumer, const Status& status, CloseCause cause) {
  if (!consumer.connection->fail(status)) return false;
  consumer.cause = cause;
  const Peer& peer = consumer.connection->peer();
  log::info(
      {.session = consumer.connection->id(), .pid = peer.pid, .uid = peer.uid, .has_quota = true},
      "data socket: ended consumer {} (pid {}, uid {}): {}", consumer.connection->id(), peer.pid,
      peer.uid, status.message());
  return true;
}

void DataServer::serve_output(std::uint64_t id) {
  const auto found = consumers_.find(id);
  if (found == consumers_.end() || !found->second->open) return;
  const std::shared_ptr<Consumer> consumer = found->second;
  Connection& connection = *consumer->connection;
  if (connection.overflowed()) {
    bump(counters_.overflows);
    close(*consumer, CloseCause::kOverflow);
    return;
  }
  const bool blocked = connection.flush() == Connection::Flow::kBlocked;
  if (blocked != consumer->writing) {
    consumer->writing = blocked;
    const std::uint32_t wanted = EPOLLIN | EPOLLRDHUP | (blocked ? EPOLLOUT : 0u);
    if (!loop_->modify(connection.socket(), wanted).ok()) close(*consumer, CloseCause::kServer);
  }
  if (!consumer->open || !connection.ending()) return;
  if (connection.finished()) {
    close(*consumer, consumer->cause);
  } else if (!std::exchange(consumer->lingers, true)) {
    loop_->run_after(options_.linger, [this, id] {
      Consumer* slow = find(id);
      if (slow != nullptr && slow->open) close(*slow, slow->cause);
    });
  }
}

void DataServer::consumer_gone(std::uint64_t id) {
  const auto found = consumers_.find(id);
  if (found == consumers_.end()) return;
  const std::shared_ptr<Consumer> consumer = found->second;
  if (consumer->open) {
    close(*consumer, CloseCause::kExit);
    return;
  }
  bump(counters_.watched_processes, -1);
  service_.exited(*consumer->connection);
  forget(*consumer);
}

// Ends the connection, but not always what is known of its process: until that has ended, it may
// read what it was lent, if anything. One that has detached hangs up after its last lease: its word
// that it reads nothing any more. So does a client of ours that we disconnect.
void DataServer::close(Consumer& consumer, CloseCause cause) {
  consumer.open = false;
  bump(counters_.connections, -1);
  Connection& connection = *consumer.connection;
  loop_->unwatch(connection.socket());
  UniqueFd socket = connection.close();
  if (!consumer.dialogue.attached()) {
    forget(consumer);
    return;
  }
  bool ended = cause == CloseCause::kExit || !connection.lent();
  if (cause == CloseCause::kHangUp) {
    consumer.dialogue.hung_up();
    ended = ended || consumer.dialogue.detached() || !consumer.witness;
  } else if (!ended && (!consumer.witness || cause != CloseCause::kProtocol)) {
    ended = !keep_listening(consumer, std::move(socket)) && !consumer.witness;
  }
  if (!ended) bump(counters_.watched_processes);
  SPDLD_FAILPOINT("delivery.consumer.closed");
  service_.closed(connection, cause);
  if (ended) {
    service_.exited(connection);
    forget(consumer);
  }
}

// We hang up, and hear by the same socket what the consumer says to that.
bool DataServer::keep_listening(Consumer& consumer, UniqueFd socket) {
  (void)::shutdown(socket.get(), SHUT_WR);
  const std::uint64_t id = consumer.connection->id();
  const bool watched =
      loop_->watch(socket.get(), EPOLLIN, [this, id](std::uint32_t) { parting_ready(id); }).ok();
  if (watched) consumer.parting = std::move(socket);
  return watched;
}

void DataServer::parting_ready(std::uint64_t id) {
  const auto found = consumers_.find(id);
  if (found == consumers_.end() || !found->second->parting) return;
  const std::shared_ptr<Consumer> consumer = found->second;
  if (read_frames(*consumer)) return;
  if (!consumer->witness || consumer->dialogue.detached()) {
    consumer_gone(id);
    return;
  }
  loop_->unwatch(consumer->parting.get());
  consumer->parting.reset();
}

void DataServer::forget(Consumer& consumer) {
  if (consumer.witness) loop_->unwatch(consumer.witness.get());
  if (consumer.parting) loop_->unwatch(consumer.parting.get());
  admission_.leave(consumer.connection->peer().uid);
  consumers_.erase(consumer.connection->id());
}

void DataServer::close_all() {
  loop_->unwatch(listener_.get());
  std::vector<std::shared_ptr<Consumer>> all;
  for (const auto& [id, consumer] : consumers_) all.push_back(consumer);
  for (const auto& consumer : all) {
    if (!consumer->open) continue;
    (void)consumer->connection->bye(wire::ByeReason::kShutdown, "the daemon stops");
    close(*consumer, CloseCause::kServer);
  }
}

}  // namespace spdld::delivery
