// SPDX-License-Identifier: Apache-2.0
#include "delivery/runners/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "base/check.h"

namespace spdld::delivery {

bool Channel::write(Frame frame, std::initializer_list<int> fds) {
  if (!open()) return false;
  iovec part{const_cast<std::byte*>(frame.data()), frame.size()};  // sendmsg only reads it
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  if (fds.size() != 0) {
    const std::size_t bytes = fds.size() * sizeof(int);
    SPDLD_CHECK(CMSG_SPACE(bytes) <= sizeof control);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), fds.begin(), bytes);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) (void)::shutdown(socket_.get(), SHUT_RDWR);  // the loop hears of its end
  return sent >= 0;
}

void Channel::turn_away(const Status& why) {
  runner::TurnedAway frame{};
  frame.code = static_cast<std::uint32_t>(why.code());
  const std::string_view text = cut(why.message(), 8192);
  frame.text_bytes = static_cast<std::uint32_t>(text.size());
  (void)send(frame, runner::RunnerFrameType::kTurnedAway, {}, text);
  close();
}

void Channel::close() {
  if (!open()) return;
  loop_.unwatch(socket_.get());
  socket_.reset();
  loop_.post(closed_);
}

}  // namespace spdld::delivery
