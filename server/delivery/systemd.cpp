// SPDX-License-Identifier: Apache-2.0
#include "delivery/systemd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace spdld::delivery {

Result<std::vector<ActivatedSocket>> activated_sockets() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(1, &names);
  if (count < 0) {
    return tl::unexpected(errno_status(-count, "reading LISTEN_FDS (socket activation)"));
  }
  std::vector<ActivatedSocket> sockets;
  for (int i = 0; i < count; ++i) {
    sockets.push_back({.name = names[i], .fd = UniqueFd(SD_LISTEN_FDS_START + i)});
    std::free(names[i]);  // NOLINT(cppcoreguidelines-no-malloc): libsystemd allocated it
  }
  std::free(names);  // NOLINT(cppcoreguidelines-no-malloc): likewise

  for (const ActivatedSocket& socket : sockets) {
    int type = 0;
    if (socket.name == "data") type = SOCK_SEQPACKET;
    if (socket.name == "control") type = SOCK_STREAM;
    if (type == 0) {
      return error(Code::kInvalidArgument,
                   fmt::format("systemd passed a socket named '{}'; FileDescriptorName= is one of "
                               "data, control",
                               socket.name));
    }
    if (sd_is_socket_unix(socket.fd.get(), type, 1, nullptr, 0) <= 0) {
      return error(
          Code::kInvalidArgument,
          fmt::format("the socket '{}' that systemd passed is not a listening Unix "
                      "socket; its unit needs {}",
                      socket.name,
                      type == SOCK_SEQPACKET ? "ListenSequentialPacket=" : "ListenStream="));
    }
    // systemd's default is a blocking listener, in whose accept() the dispatcher would be stuck.
    const int flags = fcntl(socket.fd.get(), F_GETFL);
    if (flags < 0 || fcntl(socket.fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
      return tl::unexpected(errno_status(errno, "socket '" + socket.name + "': O_NONBLOCK"));
    }
  }
  return sockets;
}

void notify_systemd(const std::string& state) {
  // Nobody to tell is not an error, and a lost message is systemd's to notice (its timeouts).
  (void)sd_notify(0, state.c_str());
}

}  // namespace spdld::delivery
