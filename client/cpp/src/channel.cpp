// SPDX-License-Identifier: Apache-2.0
#include "channel.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "socket_owner.h"
#include "spdld/error.h"
#include "text.h"

namespace spdld::client {
namespace {

// Who listens there, if it is nobody that this process has to trust anyway: root, its own user, or
// whoever owns the directory. What a daemon sends is mapped and trusted to stay as it is. Empty
// otherwise.
std::string stranger_at(int socket, const std::string& path, ucred& listener) {
  socklen_t bytes = sizeof listener;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &listener, &bytes) != 0)
    return join("asking the kernel who listens at ", path, ": ", errno_text(errno));
  if (listener.uid == 0 || listener.uid == ::geteuid()) return "";
  const std::size_t slash = path.rfind('/');
  const std::string directory =
      slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
  struct stat found {};
  if (::stat(directory.c_str(), &found) != 0)
    return join("asking for the owner of ", directory, ": ", errno_text(errno));
  if (listener.uid == found.st_uid) return "";
  return join(
      "user ", listener.uid, " listens at ", path, ", and is neither root, nor you (user ",
      ::geteuid(), "), nor the owner of ", directory, " (user ", found.st_uid,
      "): that may be somebody else's daemon in the place of yours; if it is meant to serve "
      "you, have the directory belong to its user");
}

}  // namespace

std::shared_ptr<Channel> Channel::connect(const std::string& path, std::string& why, bool& denied) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    why = join("the socket path ", path, " has ", path.size(), " bytes, and the kernel allows ",
               sizeof address.sun_path - 1, "; use a shorter runtime directory");
    return nullptr;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) {
    why = join("making a socket: ", errno_text(errno));
    return nullptr;
  }
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    // Of a daemon that starts just now the socket may not have its mode yet: it is tried again.
    denied = errno == EACCES || errno == EPERM;
    why = denied ? denied_text(path) : join("connecting to ", path, ": ", errno_text(errno));
    return nullptr;
  }
  ucred listener{};
  if (std::string stranger = stranger_at(socket.get(), path, listener); !stranger.empty())
    throw ConnectionError(kPermissionDenied, stranger);
  return std::shared_ptr<Channel>(new Channel(std::move(socket), listener.pid));
}

Channel::Got Channel::receive(std::span<std::byte> buffer, std::size_t& bytes, UniqueFd& fd,
                              std::string& why) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
  for (int attempt = 0;;) {
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Got::kNothing;
      // The daemon closed with releases of ours unread. Its own last frames come after the error.
      if (errno == ECONNRESET && attempt++ == 0) continue;
      why = errno_text(errno);
      return Got::kHangUp;
    }
    for (cmsghdr* at = message.msg_controllen >= sizeof(cmsghdr) ? CMSG_FIRSTHDR(&message)
                                                                 : nullptr;
         at != nullptr; at = CMSG_NXTHDR(&message, at)) {
      if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
      int received = -1;
      std::memcpy(&received, CMSG_DATA(at), sizeof received);
      fd = UniqueFd(received);
    }
    if (got == 0) {
      why = "the daemon hung up";
      return Got::kHangUp;
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      why = "an arena was lost on its way: this process has no file descriptors left (ulimit -n)";
      return Got::kHangUp;
    }
    if ((message.msg_flags & MSG_TRUNC) != 0) {
      why = "the daemon sent a frame that is too long";
      return Got::kHangUp;
    }
    bytes = static_cast<std::size_t>(got);
    return Got::kFrame;
  }
}

bool Channel::send(const void* frame, std::size_t bytes, bool& full) {
  for (;;) {
    full = false;
    if (::send(socket_.get(), frame, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    return false;
  }
}

void Channel::lost() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
  unsent_.clear();
  unsent_turn_.reset();
}

bool Channel::is_lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Channel::hold(const HeldBatch& batch) {
  const std::lock_guard lock(mutex_);
  held_.push_back(batch);
}

bool Channel::say(const void* frame, std::size_t bytes) {
  bool full = false;
  if (send(frame, bytes, full)) return true;
  if (!full) lost_ = true;  // the loader will see it, too
  return !full;
}

void Channel::say_unsent() {
  if (unsent_turn_) {
    wire::HandedFrame frame{};
    frame.header = {wire::FrameType::kHanded, sizeof frame};
    frame.turn = *unsent_turn_;
    if (!say(&frame, sizeof frame)) return;
    unsent_turn_.reset();
  }
  while (!unsent_.empty()) {
    wire::ReleaseFrame frame{};
    frame.header = {wire::FrameType::kRelease, sizeof frame};
    frame.lease = unsent_.back();
    if (!say(&frame, sizeof frame)) return;
    unsent_.pop_back();
  }
}

void Channel::end(std::uint64_t lease) {
  const std::lock_guard lock(mutex_);
  erase_held(lease);
  if (lost_) return;
  unsent_.push_back(lease);
  say_unsent();
}

void Channel::handed(std::uint64_t turn) {
  const std::lock_guard lock(mutex_);
  if (lost_) return;
  unsent_turn_ = turn;
  say_unsent();
}

void Channel::forget(std::uint64_t lease) {
  const std::lock_guard lock(mutex_);
  erase_held(lease);
}

void Channel::erase_held(std::uint64_t lease) {
  std::erase_if(held_, [&](const HeldBatch& batch) { return batch.lease == lease; });
}

std::uint32_t Channel::held() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(held_.size());
}

std::vector<Channel::HeldBatch> Channel::held_batches() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

}  // namespace spdld::client
