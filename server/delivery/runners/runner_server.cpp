// SPDX-License-Identifier: Apache-2.0
#include "delivery/runners/runner_server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>

#include "base/log.h"
#include "base/text/printable.h"
#include "base/text/shell_word.h"
#include "delivery/peer.h"
#include "delivery/runners/call_text.h"

namespace spdld::delivery {
namespace {

using runner::RunnerFrameType;

constexpr std::chrono::milliseconds kRunnerAcceptPause{100};
constexpr int kRunnerFramesPerTurn = 64;  // then the others have their turn

Status no_such_pool(std::string_view key) {
  return Status(Code::kNotFound,
                fmt::format("there is no pool {} of this user: its job has ended, or the daemon "
                            "has begun anew and the job is yet to come back",
                            printable(key)));
}

}  // namespace

// What the loop knows of one connection: who it is, once it has said so.
struct RunnerServer::Runner {
  using Role =
      std::variant<std::monostate, std::shared_ptr<RunnerSupervisor>, std::shared_ptr<RunnerChild>>;

  std::shared_ptr<Channel> channel;
  std::shared_ptr<RunnerPool> pool = {};
  Role role = {};
};

Result<std::unique_ptr<RunnerServer>> RunnerServer::start(UniqueFd listener,
                                                          RunnerServerOptions options,
                                                          ArenaBudget& budget) {
  SPDLD_ASSIGN(std::shared_ptr<EventLoop> loop, EventLoop::create());
  std::unique_ptr<RunnerServer> server(
      new RunnerServer(std::move(listener), std::move(options), budget, std::move(loop)));
  SPDLD_TRY(server->loop_->watch(server->listener_.get(), EPOLLIN,
                                 [raw = server.get()](std::uint32_t) { raw->accept_ready(); }));
  server->thread_ = std::thread([raw = server.get()] {
    ::pthread_setname_np(::pthread_self(), "spdld-run");
    raw->loop_->run();
  });
  return server;
}

RunnerServer::RunnerServer(UniqueFd listener, RunnerServerOptions options, ArenaBudget& budget,
                           std::shared_ptr<EventLoop> loop)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      budget_(budget),
      loop_(std::move(loop)),
      admission_(options_.connections),
      buffer_(runner::kMaxRunnerFrameBytes) {}

RunnerServer::~RunnerServer() { stop(); }

void RunnerServer::stop() {
  if (!thread_.joinable()) return;
  loop_->post([this] { close_all(); });
  loop_->stop();
  thread_.join();
}

void RunnerServer::close_all() {
  loop_->unwatch(listener_.get());
  std::map<std::string, std::shared_ptr<RunnerPool>> pools;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    pools.swap(pools_);
  }
  for (const auto& [key, pool] : pools) pool->stop();
  for (const auto& [id, runner] : runners_) runner->channel->close();
}

std::shared_ptr<RowCaller> RunnerServer::open(uid_t uid, const CallSpec& spec) {
  MutexLock lock(mutex_);
  for (unsigned again = 0;; ++again) {
    const std::string key = pool_key(uid, spec, again);
    std::shared_ptr<RunnerPool>& pool = pools_[key];
    if (pool && (pool->uid() != uid || pool->spec() != spec)) continue;
    if (pool) {
      if (auto held = pool->hold()) return held;
    }
    pool = std::make_shared<RunnerPool>(
        uid, spec, key,
        RunnerPool::Options{.command = fmt::format("python -m spdld.runner --address {} --pool {}",
                                                   shell_word(options_.address), key),
                            .cells = options_.cells,
                            .patience = options_.patience,
                            .let_go = [this, key] { let_go(key); }},
        budget_, loop_);
    if (stopped_) pool->stop();
    return pool->hold();
  }
}

// Runs on the loop's thread, which the server outlives.
void RunnerServer::let_go(const std::string& key) {
  loop_->run_after(options_.linger, [this, key] {
    std::shared_ptr<RunnerPool> pool;
    {
      MutexLock lock(mutex_);
      const auto found = pools_.find(key);
      if (found != pools_.end()) pool = found->second;
    }
    if (pool == nullptr || !pool->end_unheld()) return;
    MutexLock lock(mutex_);
    const auto found = pools_.find(key);
    if (found != pools_.end() && found->second == pool) pools_.erase(found);
  });
}

std::vector<RunnerView> RunnerServer::runners() const {
  std::vector<RunnerView> views;
  MutexLock lock(mutex_);
  for (const auto& [key, pool] : pools_) pool->add_views(views);
  return views;
}

void RunnerServer::accept_ready() {
  for (int i = 0; i < kRunnerFramesPerTurn; ++i) {
    auto socket = accept_connection(listener_.get());
    if (socket) {
      admit(std::move(*socket));
      continue;
    }
    if (socket.error().code() == Code::kUnavailable) return;
    // Out of file descriptors or memory: the runner stays in the backlog and is asked in later.
    loop_->pause(listener_.get(), kRunnerAcceptPause, EPOLLIN,
                 [this](std::uint32_t) { accept_ready(); });
    return;
  }
}

void RunnerServer::admit(UniqueFd socket) {
  const int fd = socket.get();
  const std::uint64_t id = next_id_++;
  auto peer = options_.peer(fd);
  const uid_t uid = peer.value_or(Peer{}).uid;
  const auto runner = std::make_shared<Runner>();
  runner->channel = std::make_shared<Channel>(id, std::move(socket), peer.value_or(Peer{}), *loop_,
                                              [this, id] { forget(id); });
  if (!peer) return runner->channel->turn_away(peer.error());
  if (!admission_.enter(uid).ok()) {
    return runner->channel->turn_away(
        Status(Code::kResourceExhausted,
               fmt::format("uid {}, or all users together, have as many runners as may connect; "
                           "end some of their jobs, or lower their 'concurrency'",
                           uid)));
  }
  runners_.emplace(id, runner);
  const Status watched =
      loop_->watch(fd, EPOLLIN | EPOLLRDHUP, [this, id](std::uint32_t) { ready(id); });
  if (!watched.ok()) return runner->channel->turn_away(watched);
  loop_->run_after(options_.hello_timeout, [this, id] {
    const auto found = runners_.find(id);
    if (found == runners_.end() || found->second->role.index() != 0) return;
    found->second->channel->turn_away(Status(Code::kDeadlineExceeded, "the runner said no hello"));
  });
}

void RunnerServer::forget(std::uint64_t id) {
  const auto found = runners_.find(id);
  if (found == runners_.end()) return;
  admission_.leave(found->second->channel->peer().uid);
  runners_.erase(found);
}

void RunnerServer::ready(std::uint64_t id) {
  const auto found = runners_.find(id);
  if (found == runners_.end()) return;
  const RunnerPtr runner = found->second;
  if (read_frames(runner)) return;
  if (const auto* supervisor = std::get_if<1>(&runner->role)) {
    runner->pool->gone(*supervisor);
  } else if (const auto* child = std::get_if<2>(&runner->role)) {
    runner->pool->gone(*child);
  }
  runner->channel->close();
}

bool RunnerServer::read_frames(const RunnerPtr& runner) {
  bool was_reset = false;
  for (int i = 0; i < kRunnerFramesPerTurn && runner->channel->open(); ++i) {
    const ssize_t got =
        ::recv(runner->channel->socket(), buffer_.data(), buffer_.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (got == 0) return false;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      // The other end closed with frames of ours unread. Its own last ones come after the error.
      if (errno != ECONNRESET || std::exchange(was_reset, true)) return false;
      continue;
    }
    const auto bytes = static_cast<std::size_t>(got);
    const Channel::Frame frame(buffer_.data(), std::min(bytes, buffer_.size()));
    const auto header = frame_as<runner::RunnerHeader>(frame);
    const Status taken =
        header && header->bytes == bytes && bytes <= buffer_.size()
            ? take(runner, frame)
            : Status(Code::kInvalidArgument, "a frame of another size than it says");
    if (!taken.ok()) refuse(runner, taken);
  }
  return true;
}

void RunnerServer::refuse(const RunnerPtr& runner, const Status& why) {
  if (why.code() == Code::kInvalidArgument)
    protocol_errors_.fetch_add(1, std::memory_order_relaxed);
  const Peer& peer = runner->channel->peer();
  log::info({.pid = peer.pid, .uid = peer.uid, .has_quota = true},
            "runner socket: ended a runner (pid {}, uid {}): {}", peer.pid, peer.uid,
            why.message());
  runner->channel->turn_away(why);
  if (const auto* supervisor = std::get_if<1>(&runner->role)) {
    runner->pool->gone(*supervisor);
  } else if (const auto* child = std::get_if<2>(&runner->role)) {
    runner->pool->kill(*child, "it said what no runner says: " + why.message());
  }
}

Status RunnerServer::take(const RunnerPtr& runner, Channel::Frame frame) {
  if (const auto* supervisor = std::get_if<1>(&runner->role))
    return runner->pool->take(**supervisor, frame);
  if (const auto* child = std::get_if<2>(&runner->role)) return runner->pool->take(*child, frame);
  const auto header = frame_as<runner::RunnerHeader>(frame);
  if (header->type == RunnerFrameType::kSupervisorHello) return greet_supervisor(runner, frame);
  if (header->type == RunnerFrameType::kChildHello) return greet_child(runner, frame);
  return Status(Code::kInvalidArgument, "a runner's first word is its hello");
}

namespace {

template <typename Hello>
Result<Hello> hello_of(Channel::Frame frame) {
  const auto hello = frame_as<Hello>(frame);
  if (!hello || frame.size() != sizeof *hello || hello->magic != runner::kRunnerMagic)
    return error(Code::kInvalidArgument, "a hello that is no runner's");
  if (hello->version != runner::kRunnerVersion)
    return error(Code::kFailedPrecondition,
                 fmt::format("the runner speaks version {} and the daemon {}: install the same "
                             "build of spdld for both",
                             hello->version, runner::kRunnerVersion));
  return *hello;
}

}  // namespace

Status RunnerServer::greet_supervisor(const RunnerPtr& runner, Channel::Frame frame) {
  SPDLD_ASSIGN(const auto hello, hello_of<runner::SupervisorHello>(frame));
  runner->pool = pool_for(*runner->channel, hello.key);
  if (runner->pool == nullptr) return no_such_pool({hello.key, sizeof hello.key});
  if (runner->pool->wanted().empty())
    return Status(Code::kAlreadyExists, "a process serves this pool already");
  runner->role = runner->pool->add_supervisor(runner->channel, hello);
  return {};
}

Status RunnerServer::greet_child(const RunnerPtr& runner, Channel::Frame frame) {
  SPDLD_ASSIGN(const auto hello, hello_of<runner::ChildHello>(frame));
  runner->pool = pool_for(*runner->channel, hello.key);
  if (runner->pool == nullptr) return no_such_pool({hello.key, sizeof hello.key});
  // That one of this number has ended was said before, and may be yet to be read.
  if (const auto before = runner->pool->supervisor_of(hello)) ready(before->channel->id());
  const auto supervisor = runner->pool->supervisor_of(hello);
  if (supervisor == nullptr) return no_such_pool({hello.key, sizeof hello.key});
  SPDLD_ASSIGN(runner->role, runner->pool->add_child(supervisor, runner->channel, hello));
  return {};
}

std::shared_ptr<RunnerPool> RunnerServer::pool_for(const Channel& channel, const char* key) const {
  MutexLock lock(mutex_);
  const auto found = pools_.find(std::string(key, runner::kKeyBytes));
  if (found == pools_.end() || !channel.peer().is_user(found->second->uid())) return nullptr;
  return found->second;
}

}  // namespace spdld::delivery
