// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "posix/unique_fd.h"
#include "tests/unit/control/temp_socket.h"

namespace spdld::observe {

inline sockaddr_in loopback(const char* address, std::uint16_t port) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  EXPECT_EQ(::inet_pton(AF_INET, address, &place.sin_addr), 1);
  return place;
}

// A listener at a free port of this machine.
inline UniqueFd listen_tcp() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const sockaddr_in place = loopback("127.0.0.1", 0);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  EXPECT_EQ(::listen(fd.get(), SOMAXCONN), 0);
  return fd;
}

inline std::uint16_t port_of(int listener) {
  sockaddr_in place{};
  socklen_t bytes = sizeof place;
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&place), &bytes), 0);
  return ntohs(place.sin_port);
}

// One connection to a server, which may behave as badly as it likes.
class HttpClient {
 public:
  explicit HttpClient(const std::string& unix_path) : fd_(control::connect_to(unix_path)) {}
  // From one of this machine's own addresses.
  explicit HttpClient(std::uint16_t port, const char* from = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in own = loopback(from, 0);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
    const sockaddr_in place = loopback("127.0.0.1", port);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  }

  // False: the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // All that comes until the server closes the connection.
  std::string rest() {
    std::string text;
    char buffer[65536];
    ssize_t got = 0;
    while ((got = ::recv(fd_.get(), buffer, sizeof buffer, 0)) > 0)
      text.append(buffer, static_cast<std::size_t>(got));
    return text;
  }
  std::string ask(std::string_view request) {
    send(request);
    return rest();
  }
  std::string get(const std::string& path) {
    return ask("GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n");
  }
  // Whether the server ends it within this time; a last word is read and dropped.
  bool ends_within(int wait_ms) {
    pollfd wait{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    while (::poll(&wait, 1, wait_ms) == 1) {
      char buffer[4096];
      if (::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT) <= 0 && errno != EAGAIN)
        return true;
    }
    return false;
  }

 private:
  UniqueFd fd_;
};

inline std::string status_line(const std::string& answer) {
  return answer.substr(0, answer.find("\r\n"));
}

inline std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace spdld::observe
