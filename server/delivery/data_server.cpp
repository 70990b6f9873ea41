// SPDX-License-Identifier: Apache-2.0
#include "delivery/data_server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <variant>

#include "base/log.h"

namespace spdld::delivery {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kLinger{5'000};  // for the last word to be read
constexpr int kFramesPerTurn = 64;                   // then the others have their turn

void bump(std::atomic<std::uint64_t>& counter, std::int64_t by = 1) {
  counter.fetch_add(static_cast<std::uint64_t>(by), std::memory_order_relaxed);
}

std::uint64_t read(const std::atomic<std::uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

std::string_view close_cause_name(CloseCause cause) {
  switch (cause) {
    case CloseCause::kExit: return "exit";
    case CloseCause::kHangUp: return "hang-up";
    case CloseCause::kProtocol: return "protocol error";
    case CloseCause::kOverflow: return "overflow";
    case CloseCause::kServer: return "server";
  }
  return "unknown";
}

// What the dispatcher knows of one connection.
struct DataServer::Consumer {
  enum class Stage { kHello, kAttach, kServing, kDetached };

  ConnectionPtr connection;
  UniqueFd witness;  // readable or hung up once the process has ended
  Stage stage = Stage::kHello;
  bool open = true;      // the socket is watched
  bool known = false;    // the service has seen attach()
  bool writing = false;  // waits for room in the socket
  bool lingers = false;  // ends as soon as its last word has gone out, or after kLinger
  CloseCause cause = CloseCause::kServer;  // if it is we who end it
  // The pipeline's YAML as it comes in.
  std::string blob;
  std::uint32_t blob_serial = 0;
  std::uint32_t blob_total = 0;
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
      buffer_(wire::kMaxFrameBytes) {
  // 16 bytes never come in parts, and a consumer compares them for nothing but being another's.
  (void)!::getrandom(generation_.data(), generation_.size(), 0);
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

void DataServer::accept_ready() {
  for (int i = 0; i < kFramesPerTurn; ++i) {
    auto socket = accept_unix(listener_.get());
    if (socket) {
      admit(std::move(*socket));
      continue;
    }
    if (socket.error().code() == Code::kUnavailable) return;
    // Out of file descriptors or memory: the consumer stays in the backlog and is asked in later.
    bump(counters_.accept_failures);
    spdlog::warn("data socket: {}", socket.error().message());
    pause_accepting();
    return;
  }
}

void DataServer::pause_accepting() {
  loop_->unwatch(listener_.get());
  loop_->run_after(kAcceptPause, [this] {
    const Status watched =
        loop_->watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_ready(); });
    if (!watched.ok()) pause_accepting();
  });
}

void DataServer::admit(UniqueFd socket) {
  const int fd = socket.get();
  const std::uint64_t id = next_id_++;
  auto peer = peer_of(fd);
  auto consumer = std::make_shared<Consumer>();
  // The connection may outlive the server: what it wants then is forgotten.
  consumer->connection =
      std::make_shared<Connection>(id, std::move(socket), peer.value_or(Peer{}),
                                   [this, id, loop = std::weak_ptr<EventLoop>(loop_)] {
                                     if (const auto alive = loop.lock())
                                       alive->post([this, id] { serve_output(id); });
                                   });
  Connection& connection = *consumer->connection;

  Status refusal;
  const auto of_uid = std::count_if(consumers_.begin(), consumers_.end(), [&](const auto& other) {
    return other.second->connection->peer().uid == connection.peer().uid;
  });
  if (!peer) {
    refusal = peer.error();
  } else if (consumers_.size() >= options_.max_connections) {
    refusal = Status(Code::kResourceExhausted,
                     fmt::format("the daemon has its {} consumers already", consumers_.size()));
  } else if (static_cast<std::size_t>(of_uid) >= options_.max_connections_per_uid) {
    refusal = Status(Code::kResourceExhausted,
                     fmt::format("user {} has {} consumers already; no more are allowed",
                                 connection.peer().uid, of_uid));
  } else if (auto witness = liveness_.watch(fd, connection.peer().pid)) {
    consumer->witness = std::move(*witness);
  } else {
    refusal = witness.error();
  }
  if (refusal.ok()) {
    refusal = loop_->watch(fd, EPOLLIN | EPOLLRDHUP,
                           [this, id](std::uint32_t events) { socket_ready(id, events); });
  }
  if (refusal.ok() && consumer->witness) {
    refusal = loop_->watch(consumer->witness.get(), EPOLLIN,
                           [this, id](std::uint32_t) { process_exited(id); });
    if (!refusal.ok()) loop_->unwatch(fd);
  }
  if (!refusal.ok()) {
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

DataServer::Consumer* DataServer::find(std::uint64_t id) {
  const auto found = consumers_.find(id);
  return found == consumers_.end() ? nullptr : found->second.get();
}

void DataServer::check_greeted(std::uint64_t id) {
  Consumer* consumer = find(id);
  if (consumer == nullptr || !consumer->open || consumer->known) return;
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
  if (!consumer->open) {
    // We ended it, and its socket is all that tells of its process: see close().
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) process_exited(id);
    return;
  }
  if ((events & EPOLLOUT) != 0) serve_output(id);
  if (consumer->open && (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0 &&
      !read_frames(*consumer)) {
    close(*consumer, consumer->lingers ? consumer->cause : CloseCause::kHangUp);
  }
}

bool DataServer::read_frames(Consumer& consumer) {
  const int fd = consumer.connection->socket();
  bool was_reset = false;
  for (int i = 0; i < kFramesPerTurn && consumer.open; ++i) {
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
    Status status =
        bytes > buffer_.size()
            ? Status(Code::kInvalidArgument,
                     fmt::format("frame of {} bytes; {} are allowed", bytes, buffer_.size()))
            : dispatch(consumer, {buffer_.data(), bytes});
    if (!status.ok()) {
      const bool garbage = status.code() == Code::kInvalidArgument;
      if (reject(consumer, status, garbage ? CloseCause::kProtocol : CloseCause::kServer)) {
        bump(garbage ? counters_.protocol_errors : counters_.refused);
      }
    }
  }
  return true;
}

Status DataServer::dispatch(Consumer& consumer, std::span<const std::byte> bytes) {
  using Stage = Consumer::Stage;
  SPDLD_ASSIGN(Request request, parse_request(bytes));
  const auto unexpected = [](std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("{} out of turn", what));
  };
  Connection& connection = *consumer.connection;

  if (const auto* release = std::get_if<ReleaseRequest>(&request)) {
    if (!consumer.known) return unexpected("Release");
    service_.release(connection, release->lease);
    return {};
  }
  if (consumer.lingers || connection.ending()) {
    // Its words come too late, but for the one about the leases it has: see close().
    if (consumer.stage == Stage::kServing && std::holds_alternative<DetachRequest>(request))
      consumer.stage = Stage::kDetached;
    return {};
  }

  if (const auto* hello = std::get_if<Hello>(&request)) {
    if (consumer.stage != Stage::kHello) return unexpected("Hello");
    return greet(consumer, *hello);
  }
  if (const auto* part = std::get_if<BlobPart>(&request)) {
    if (consumer.stage != Stage::kAttach) return unexpected("Blob");
    return append_blob(consumer, *part);
  }
  if (auto* wanted = std::get_if<AttachRequest>(&request)) {
    if (consumer.stage != Stage::kAttach) return unexpected("Attach");
    return attach(consumer, std::move(*wanted));
  }
  if (consumer.stage == Stage::kDetached) return unexpected("a request (after Detach)");
  if (consumer.stage != Stage::kServing) return unexpected("a request (before Attach)");
  if (const auto* seek = std::get_if<SeekRequest>(&request)) {
    service_.seek(connection, *seek);
  } else if (const auto* query = std::get_if<QueryRequest>(&request)) {
    service_.query(connection, *query);
  } else {
    consumer.stage = Stage::kDetached;
    service_.detach(connection);
  }
  return {};
}

Status DataServer::greet(Consumer& consumer, const Hello& hello) {
  const std::uint32_t protocol = std::min(hello.protocol_max, wire::kProtocolMax);
  if (protocol < std::max(hello.protocol_min, wire::kProtocolMin)) {
    const bool client_is_newer = hello.protocol_min > wire::kProtocolMax;
    return Status(
        Code::kFailedPrecondition,
        fmt::format("{} speaks the data protocols {} to {}, and the daemon {} speaks {} to {}; "
                    "upgrade the {}",
                    hello.client.empty() ? "the client" : hello.client, hello.protocol_min,
                    hello.protocol_max, options_.server_name, wire::kProtocolMin,
                    wire::kProtocolMax, client_is_newer ? "daemon" : "client"));
  }
  consumer.connection->client_ = hello.client;
  consumer.stage = Consumer::Stage::kAttach;
  (void)consumer.connection->send(
      {.head = welcome_frame(protocol, generation_, options_.server_name)});
  return {};
}

Status DataServer::append_blob(Consumer& consumer, const BlobPart& part) {
  if (part.offset == 0) {
    consumer.blob.clear();
    consumer.blob_serial = part.serial;
    consumer.blob_total = part.total_bytes;
  }
  if (part.offset != consumer.blob.size() || part.serial != consumer.blob_serial ||
      part.total_bytes != consumer.blob_total) {
    return Status(Code::kInvalidArgument, "Blob frame: its parts do not follow each other");
  }
  consumer.blob.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
  return {};
}

Status DataServer::attach(Consumer& consumer, AttachRequest request) {
  if (consumer.blob.size() != consumer.blob_total || request.blob_bytes != consumer.blob_total) {
    return Status(Code::kInvalidArgument,
                  fmt::format("Attach frame: {} bytes of YAML were announced, and {} came",
                              request.blob_bytes, consumer.blob.size()));
  }
  request.pipeline_yaml = std::exchange(consumer.blob, {});
  consumer.stage = Consumer::Stage::kServing;
  consumer.known = true;
  service_.attach(consumer.connection, std::move(request));
  return {};
}

// Says why, and ends the connection once that has gone out. False: it is ending already.
bool DataServer::reject(Consumer& consumer, const Status& status, CloseCause cause) {
  if (!consumer.connection->fail(status)) return false;
  consumer.cause = cause;
  const Peer& peer = consumer.connection->peer();
  spdlog::info("data socket: ended consumer {} (pid {}, uid {}): {}", consumer.connection->id(),
               peer.pid, peer.uid, status.message());
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
    loop_->run_after(kLinger, [this, id] {
      Consumer* slow = find(id);
      if (slow != nullptr && slow->open) close(*slow, slow->cause);
    });
  }
}

void DataServer::process_exited(std::uint64_t id) {
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
// read what it was lent, if anything.
void DataServer::close(Consumer& consumer, CloseCause cause) {
  consumer.open = false;
  bump(counters_.connections, -1);
  Connection& connection = *consumer.connection;
  loop_->unwatch(connection.socket());
  UniqueFd socket = connection.close();
  if (!consumer.known) {
    forget(consumer);
    return;
  }
  // Who has detached hangs up after its last lease: its word that it reads nothing any more.
  const bool detached = consumer.stage == Consumer::Stage::kDetached;
  bool ended = cause == CloseCause::kExit || !connection.lent() ||
               (detached && cause == CloseCause::kHangUp);
  if (!consumer.witness && cause == CloseCause::kHangUp) {
    // Nothing tells of its process. A client of ours hangs up after its last lease.
    ended = true;
  } else if (!consumer.witness && !ended) {
    // We hang up, and see by the same socket when the consumer has.
    (void)::shutdown(socket.get(), SHUT_WR);
    consumer.witness = std::move(socket);
    const std::uint64_t id = connection.id();
    ended = !loop_
                 ->watch(consumer.witness.get(), 0,
                         [this, id](std::uint32_t events) { socket_ready(id, events); })
                 .ok();
  }
  if (!ended) bump(counters_.watched_processes);
  service_.closed(connection, cause);
  if (ended) {
    service_.exited(connection);
    forget(consumer);
  }
}

void DataServer::forget(Consumer& consumer) {
  if (consumer.witness) loop_->unwatch(consumer.witness.get());
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
