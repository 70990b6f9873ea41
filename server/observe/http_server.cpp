// SPDX-License-Identifier: Apache-2.0
#include "observe/http_server.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.h"
#include "delivery/event_loop.h"
#include "delivery/peer.h"

namespace spdld::observe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPauseWithoutDescriptors{200};
constexpr int kLooksInALifetime = 8;

struct EndResponse {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};
using Response = std::unique_ptr<MHD_Response, EndResponse>;

Response response_of(const HttpPage& page) {
  using Text = std::shared_ptr<const std::string>;
  auto text = std::make_unique<Text>(page.text);
  Response response(MHD_create_response_from_buffer_with_free_callback_cls(
      (*text)->size(), const_cast<char*>((*text)->data()),
      [](void* held) { delete static_cast<Text*>(held); }, text.get()));
  if (response != nullptr) (void)text.release();  // NOLINT(bugprone-unused-return-value): it has it
  return response;
}

int descriptor_of(MHD_Connection* connection) {
  return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

// The user or address that a connection counts for.
std::string owner_of(const sockaddr_storage& address, const std::optional<Peer>& peer) {
  if (peer) return "uid " + std::to_string(peer->uid);
  const auto* bytes = reinterpret_cast<const char*>(&address);
  if (address.ss_family == AF_INET6)
    return {bytes + offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr)};
  return {bytes + offsetof(sockaddr_in, sin_addr), sizeof(in_addr)};
}

}  // namespace

struct HttpServer::Impl {
  struct Connection {
    std::string owner;
    std::optional<Peer> peer;
    Clock::time_point accepted;
    Clock::time_point came_on;  // accepted, or answered
  };

  Impl(UniqueFd listening, HttpPages what, const HttpOptions& bounds,
       std::unique_ptr<delivery::EventLoop> events)
      : listener(std::move(listening)),
        pages(std::move(what)),
        options(bounds),
        loop(std::move(events)) {}

  void accept_one();
  void admit(UniqueFd socket);
  void make_room();
  // Lets libmicrohttpd do what can be done now.
  void work();
  void look_for_old_ones();
  HttpPage page_for(MHD_Connection* connection, const std::string& path, std::string_view method);
  MHD_Result answer(MHD_Connection* connection, const char* path, const char* method);

  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* path,
                               const char* method, const char* version, const char* body,
                               std::size_t* body_bytes, void** context);
  static void on_connection(void* self, MHD_Connection* connection, void** context,
                            MHD_ConnectionNotificationCode what);

  const UniqueFd listener;
  const HttpPages pages;
  const HttpOptions options;
  const std::unique_ptr<delivery::EventLoop> loop;
  // The thread's alone, as all that follows. By descriptor: libmicrohttpd tells of its end before
  // it is closed.
  std::map<int, Connection> connections;
  bool is_looking = false;
  bool has_work = false;  // posted to the loop
  struct EndDaemon {
    void operator()(MHD_Daemon* ended) const { MHD_stop_daemon(ended); }
  };
  std::unique_ptr<MHD_Daemon, EndDaemon> daemon;  // ends before `connections`
  std::thread thread;
};

void HttpServer::Impl::accept_one() {
  auto socket = delivery::accept_connection(listener.get());
  if (socket) {
    admit(*std::move(socket));
    return work();  // its request may be there: the next one shall not cost it its place
  }
  // Out of file descriptors or memory: peers stay in the backlog.
  if (socket.error().code() != Code::kUnavailable)
    loop->pause(listener.get(), kPauseWithoutDescriptors, EPOLLIN,
                [this](std::uint32_t) { accept_one(); });
}

void HttpServer::Impl::admit(UniqueFd socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return;
  std::optional<Peer> peer;
  if (address.ss_family == AF_UNIX) {
    auto found = peer_of(socket.get());
    if (!found) return;
    peer = *std::move(found);
  }
  if (connections.size() >= options.max_connections) make_room();
  if (connections.size() >= options.max_connections) return;

  const auto now = Clock::now();
  const int fd = socket.release();  // closed by libmicrohttpd, whatever comes of it
  std::string owner = owner_of(address, peer);
  connections[fd] = {
      .owner = std::move(owner), .peer = std::move(peer), .accepted = now, .came_on = now};
  if (MHD_add_connection(daemon.get(), fd, reinterpret_cast<sockaddr*>(&address), bytes) ==
      MHD_NO) {
    connections.erase(fd);
    return;
  }
  if (!std::exchange(is_looking, true))
    loop->run_after(options.lifetime / kLooksInALifetime, [this] { look_for_old_ones(); });
}

void HttpServer::Impl::make_room() {
  std::map<std::string_view, std::size_t> counts;
  for (const auto& [fd, connection] : connections) ++counts[connection.owner];
  const std::size_t most =
      std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->second;
  const std::pair<const int, Connection>* first = nullptr;
  for (const auto& entry : connections) {
    if (counts[entry.second.owner] == most &&
        (first == nullptr || entry.second.came_on < first->second.came_on))
      first = &entry;
  }
  ::shutdown(first->first, SHUT_RDWR);
  work();
}

void HttpServer::Impl::work() {
  MHD_run(daemon.get());
  MHD_UNSIGNED_LONG_LONG wait_ms = 0;
  // A connection that still has something to do lets the others, and newcomers, have their turn.
  if (MHD_get_timeout(daemon.get(), &wait_ms) == MHD_NO || wait_ms > 0) return;
  if (std::exchange(has_work, true)) return;
  loop->post([this] {
    has_work = false;
    work();
  });
}

// A peer that sends or reads a byte now and then is as old as one that does nothing.
void HttpServer::Impl::look_for_old_ones() {
  const auto oldest = Clock::now() - options.lifetime;
  for (const auto& [fd, connection] : connections) {
    if (connection.accepted <= oldest) ::shutdown(fd, SHUT_RDWR);
  }
  work();
  is_looking = !connections.empty();
  if (is_looking)
    loop->run_after(options.lifetime / kLooksInALifetime, [this] { look_for_old_ones(); });
}

HttpPage HttpServer::Impl::page_for(MHD_Connection* connection, const std::string& path,
                                    std::string_view method) {
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD)
    return http_page("only GET and HEAD are answered\n", MHD_HTTP_METHOD_NOT_ALLOWED);
  const auto found = pages.find(path);
  if (found == pages.end()) {
    std::string text = "there is no such page; there are:\n";
    for (const auto& [there, made] : pages) text += there + "\n";
    return http_page(std::move(text), MHD_HTTP_NOT_FOUND);
  }
  Connection& from = connections.at(descriptor_of(connection));
  HttpPage made = found->second(from.peer);
  from.came_on = Clock::now();
  return made;
}

MHD_Result HttpServer::Impl::answer(MHD_Connection* connection, const char* path,
                                    const char* method) {
  const HttpPage what = page_for(connection, path, method);
  const Response response = response_of(what);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONTENT_TYPE,
                          "text/plain; version=0.0.4; charset=utf-8");
  if (what.status == MHD_HTTP_METHOD_NOT_ALLOWED)
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  // Before a body has been read: so none is, and the connection is closed after this.
  return MHD_queue_response(connection, what.status, response.get());
}

MHD_Result HttpServer::Impl::on_request(void* self, MHD_Connection* connection, const char* path,
                                        const char* method, const char* /*version*/,
                                        const char* /*body*/, std::size_t* /*body_bytes*/,
                                        void** /*context*/) {
  try {
    return static_cast<Impl*>(self)->answer(connection, path, method);
  } catch (const std::exception& failure) {
    spdlog::error("http: the answer for {} failed: {}", path, failure.what());
    return MHD_NO;  // which closes the connection
  }
}

void HttpServer::Impl::on_connection(void* self, MHD_Connection* connection, void** /*context*/,
                                     MHD_ConnectionNotificationCode what) {
  if (what != MHD_CONNECTION_NOTIFY_CLOSED) return;
  static_cast<Impl*>(self)->connections.erase(descriptor_of(connection));
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(UniqueFd listener, HttpPages pages,
                                                      const HttpOptions& options) {
  SPDLD_ASSIGN(auto loop, delivery::EventLoop::create());
  auto impl =
      std::make_unique<Impl>(std::move(listener), std::move(pages), options, std::move(loop));
  // Polled by the loop: it has no thread, no listener and no timeouts of its own.
  impl->daemon.reset(MHD_start_daemon(
      MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr, &Impl::on_request, impl.get(),
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(options.max_connections + 1),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, options.max_request_bytes, MHD_OPTION_NOTIFY_CONNECTION,
      &Impl::on_connection, impl.get(), MHD_OPTION_END));
  if (impl->daemon == nullptr)
    return error(Code::kInternal, "cannot start the HTTP server: libmicrohttpd refused");
  const MHD_DaemonInfo* const info =
      MHD_get_daemon_info(impl->daemon.get(), MHD_DAEMON_INFO_EPOLL_FD);
  Impl& serving = *impl;
  SPDLD_TRY(
      serving.loop->watch(info->epoll_fd, EPOLLIN, [&serving](std::uint32_t) { serving.work(); }));
  SPDLD_TRY(serving.loop->watch(serving.listener.get(), EPOLLIN,
                                [&serving](std::uint32_t) { serving.accept_one(); }));
  serving.thread = std::thread([&serving] {
    ::pthread_setname_np(::pthread_self(), "spdld-http");
    serving.loop->run();
  });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { stop(); }

void HttpServer::stop() {
  if (!impl_->thread.joinable()) return;
  impl_->loop->stop();
  impl_->thread.join();
  impl_->daemon.reset();
}

}  // namespace spdld::observe
