// SPDX-License-Identifier: Apache-2.0
#include "control/peers.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace spdld::control {
namespace {

// Nothing: it is no socket. Asks no file system: a number may have become a file's, on storage that
// does not answer.
std::optional<std::uint64_t> socket_cookie(int fd) {
  std::uint64_t cookie = 0;
  socklen_t bytes = sizeof cookie;
  if (::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) != 0) return std::nullopt;
  return cookie;
}

}  // namespace

Result<job::Caller> Peers::admit(int fd) {
  sockaddr_storage address{};
  socklen_t address_bytes = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_bytes) != 0)
    return tl::unexpected(errno_status(errno, "cannot tell what a control connection is"));
  if (address.ss_family != AF_UNIX)
    return error(Code::kPermissionDenied, "a control connection must come over a Unix socket");

  SPDLD_ASSIGN(const job::Caller caller, peer_of(fd));
  const std::optional<std::uint64_t> socket = socket_cookie(fd);
  if (!socket) return error(Code::kInternal, "a control connection is gone before it was served");

  MutexLock lock(mutex_);
  entries_.erase(fd);
  forget_closed();
  const auto of_uid = static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [&](const auto& entry) { return entry.second.caller.uid == caller.uid; }));
  if (of_uid >= max_per_uid_ ||
      (!trusted_.contains(caller.uid) && entries_.size() >= max_connections_)) {
    return error(Code::kResourceExhausted,
                 fmt::format("control connection of pid {} (uid {}) refused: {} are open, {} of "
                             "them of this user; at most {} and {} may be",
                             caller.pid, caller.uid, entries_.size(), of_uid, max_connections_,
                             max_per_uid_));
  }
  entries_[fd] = Entry{caller, *socket};
  return caller;
}

std::optional<job::Caller> Peers::find(std::string_view peer) const {
  constexpr std::string_view kScheme = "fd:";
  if (!peer.starts_with(kScheme)) return std::nullopt;
  peer.remove_prefix(kScheme.size());
  int fd = -1;
  const auto [end, failure] = std::from_chars(peer.data(), peer.data() + peer.size(), fd);
  if (failure != std::errc() || end != peer.data() + peer.size()) return std::nullopt;

  MutexLock lock(mutex_);
  const auto entry = entries_.find(fd);
  if (entry == entries_.end()) return std::nullopt;
  return entry->second.caller;
}

std::size_t Peers::open() {
  MutexLock lock(mutex_);
  forget_closed();
  return entries_.size();
}

std::map<uid_t, std::size_t> Peers::users() {
  MutexLock lock(mutex_);
  forget_closed();
  std::map<uid_t, std::size_t> users;
  for (const auto& [fd, entry] : entries_) ++users[entry.caller.uid];
  return users;
}

void Peers::forget_closed() {
  std::erase_if(entries_, [](const auto& entry) {
    return socket_cookie(entry.first) != entry.second.socket;
  });
}

}  // namespace spdld::control
