// SPDX-License-Identifier: Apache-2.0
#include "control/control_server.h"

#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/users/credentials.h"
#include "control/services.h"

namespace spdld::control {
namespace {

constexpr int kMaxRequestBytes = 2 << 20;  // a pipeline's text has at most 1 MiB
constexpr std::size_t kMaxBufferBytes = 64u << 20;
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{200};
constexpr std::chrono::milliseconds kGraceOfDestructor{2000};
constexpr std::uint64_t kAcceptFailuresPerLine = 50;  // of the log: some ten seconds

// gRPC's own lines: it would write them to stderr, and wait for whoever reads that.
void log_of_grpc(gpr_log_func_args* line) {
  spdlog::log(line->severity == GPR_LOG_SEVERITY_ERROR ? spdlog::level::warn : spdlog::level::debug,
              "gRPC: {}", line->message);
}

Status check_listener(int fd) {
  int listening = 0;
  socklen_t bytes = sizeof(listening);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0)
    return errno_status(errno, "the control socket's listener");
  if (listening == 0)
    return Status(Code::kInvalidArgument, "the control socket that was passed does not listen");
  int domain = 0;
  bytes = sizeof(domain);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0)
    return errno_status(errno, "the control socket's listener");
  int type = 0;
  bytes = sizeof(type);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0)
    return errno_status(errno, "the control socket's listener");
  if (domain != AF_UNIX || type != SOCK_STREAM) {
    return Status(Code::kInvalidArgument,
                  "the control socket that was passed is no Unix stream socket");
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return errno_status(errno, "the control socket's listener");
  return Status();
}

}  // namespace

struct ControlServer::Impl {
  Impl(UniqueFd listening, UniqueFd waking, session::Service& service,
       const ControlOptions& options)
      : listener(std::move(listening)),
        wake(std::move(waking)),
        peers(options.max_connections, options.max_connections_per_uid, options.trusted),
        long_calls(options.max_long_calls, options.max_long_calls_per_uid, options.trusted),
        environment{service, peers, long_calls, stop, options.metrics} {}

  void accept_loop();
  void accept_one();

  UniqueFd listener;
  std::uint64_t accept_failures = 0;
  const UniqueFd wake;
  Peers peers;
  LongCalls long_calls;
  StopSignal stop;
  const Environment environment;
  std::vector<std::unique_ptr<grpc::Service>> services;  // outlive `server`
  std::unique_ptr<grpc::Server> server;
  std::thread accepting;
};

void ControlServer::Impl::accept_loop() {
  ::pthread_setname_np(::pthread_self(), "spdld-control");
  while (!stop.raised()) {
    pollfd waits[] = {{listener.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) {
      spdlog::error("control: cannot wait for connections: {}",
                    errno_status(errno, "poll").message());
      if (stop.wait_for(kPauseWithoutDescriptors)) return;
      continue;
    }
    if (waits[0].revents != 0 && !stop.raised()) accept_one();
  }
}

void ControlServer::Impl::accept_one() {
  UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection) {
    if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED) return;
    // Out of descriptors or memory: the connection stays in the backlog, and trying again at once
    // would only burn a core.
    const Status failed = errno_status(errno, "cannot accept a connection");
    if (accept_failures++ % kAcceptFailuresPerLine == 0)
      spdlog::warn("control: {}; callers wait until it can be done", failed.message());
    stop.wait_for(kPauseWithoutDescriptors);
    return;
  }
  if (const auto caller = peers.admit(connection.get()); !caller) {
    const Result<Peer> peer = peer_of(connection.get());
    log::About about{.has_quota = peer.has_value()};
    if (peer) about.uid = peer->uid;
    log::warn(about, "control: {}", caller.error().message());
    return;
  }
  grpc::AddInsecureChannelFromFd(server.get(), connection.release());
}

Result<std::unique_ptr<ControlServer>> ControlServer::start(UniqueFd listener,
                                                            session::Service& service,
                                                            const ControlOptions& options) {
  SPDLD_TRY(check_listener(listener.get()));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return tl::unexpected(errno_status(errno, "cannot start the control server: eventfd"));
  auto impl = std::make_unique<Impl>(std::move(listener), std::move(wake), service, options);

  ::gpr_set_log_function(log_of_grpc);
  // One reference is kept for the life of the process. Dropping the last one makes gRPC shut itself
  // down, and that (in 1.51) can wait for ever for its backup poller once a connection has died
  // with bytes unsent.
  grpc_init();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("spdld-control");
  quota.SetMaxThreads(options.max_threads).Resize(kMaxBufferBytes);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  impl->services.push_back(make_pipelines(impl->environment));
  impl->services.push_back(make_jobs(impl->environment));
  impl->services.push_back(make_sessions(impl->environment));
  impl->services.push_back(make_stats(impl->environment));
  for (const auto& served : impl->services) builder.RegisterService(served.get());
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr)
    return error(Code::kInternal, "cannot start the control server: gRPC refused");
  if (auto* health = impl->server->GetHealthCheckService(); health != nullptr)
    health->SetServingStatus(true);

  Impl& serving = *impl;
  serving.accepting = std::thread([&serving] { serving.accept_loop(); });
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ControlServer::~ControlServer() { stop(kGraceOfDestructor); }

void ControlServer::stop(std::chrono::milliseconds grace) {
  if (impl_->server == nullptr) return;
  const auto deadline = std::chrono::system_clock::now() + grace;
  impl_->stop.raise();
  // A full eventfd wakes as well as a written one.
  [[maybe_unused]] const int woken = ::eventfd_write(impl_->wake.get(), 1);
  impl_->accepting.join();
  impl_->listener.reset();
  impl_->server->Shutdown(deadline);
  impl_->server.reset();
}

}  // namespace spdld::control
