// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <optional>
#include <string>

#include "posix/unique_fd.h"
#include "tests/support/received_frame.h"
#include "tests/unit/delivery/raw_frames.h"

namespace spdld::test {

// A consumer that says what the test wants it to say. Waits without a limit: the test's watchdog
// has one.
class RawClient {
 public:
  explicit RawClient(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    connect(path);
  }
  // Connects later: the socket is there, whatever happens to file descriptors meanwhile.
  RawClient() : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {}

  void connect(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0)
        << std::strerror(errno);
  }

  int fd() const { return socket_.get(); }
  void hang_up() { socket_.reset(); }
  bool send(const Bytes& frame) {
    return ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL) >= 0;
  }

  // The next frame; nothing when the daemon hung up.
  std::optional<ReceivedFrame> receive() { return receive_frame(socket_.get()); }

  template <typename T>
  T expect(wire::FrameType type) {
    const auto frame = receive();
    if (!frame || frame->size() < sizeof(T)) {
      ADD_FAILURE() << "hung up, or a short frame";
      return {};
    }
    EXPECT_EQ(frame->type(), type);
    rest_ = frame->text_behind<T>();
    return frame->as<T>();
  }
  // What followed the fixed part of the frame that expect() gave.
  const std::string& rest() const { return rest_; }

  // The text of the Error that the daemon ends the connection with.
  std::string last_words() {
    const auto error = expect<wire::ErrorFrame>(wire::FrameType::kError);
    EXPECT_EQ(error.fatal, 1u);
    const std::string text = rest_;
    EXPECT_FALSE(receive()) << "the daemon hangs up after it";
    return text;
  }

  void greet() {
    send(hello_bytes(wire::kProtocol, wire::kProtocol));
    expect<wire::WelcomeFrame>(wire::FrameType::kWelcome);
  }
  void attach() {
    greet();
    send(attach_bytes(attach_fixed(), {{wire::TextKey::kPipeline, "p"}}));
  }

 private:
  UniqueFd socket_;
  std::string rest_;
};

}  // namespace spdld::test
