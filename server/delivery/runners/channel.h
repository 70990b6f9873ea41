// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/text/utf8.h"
#include "base/users/credentials.h"
#include "delivery/event_loop.h"
#include "posix/unique_fd.h"
#include "spdld/runner.h"

namespace spdld::delivery {

// The daemon's end of a connection with a runner. Owned by RunnerServer, shared with the pool that
// the runner serves; the loop's thread alone. Few frames are ever on their way to a runner: one
// that lets its socket fill up is hung up on.
class Channel {
 public:
  using Frame = std::span<const std::byte>;

  // `closed` is posted to the loop when it has been closed.
  Channel(std::uint64_t id, UniqueFd socket, Peer peer, EventLoop& loop, EventLoop::Task closed)
      : id_(id),
        peer_(std::move(peer)),
        loop_(loop),
        closed_(std::move(closed)),
        socket_(std::move(socket)) {}
  ~Channel() { close(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  std::uint64_t id() const { return id_; }
  const Peer& peer() const { return peer_; }
  bool open() const { return static_cast<bool>(socket_); }
  int socket() const { return socket_.get(); }

  // Sets the frame's header. False: the connection is closed.
  template <typename T>
  bool send(T frame, runner::RunnerFrameType type, std::initializer_list<int> fds = {},
            std::string_view text = {}) {
    std::vector<std::byte> bytes(sizeof frame + text.size());
    frame.header = {type, static_cast<std::uint32_t>(bytes.size())};
    std::memcpy(bytes.data(), &frame, sizeof frame);
    text.copy(reinterpret_cast<char*>(bytes.data()) + sizeof frame, text.size());
    return write(bytes, fds);
  }
  // Says why, and closes.
  void turn_away(const Status& why);
  void close();

 private:
  bool write(Frame frame, std::initializer_list<int> fds);

  const std::uint64_t id_;
  const Peer peer_;
  EventLoop& loop_;
  const EventLoop::Task closed_;
  UniqueFd socket_;
};

// The frame as a T; none: it is shorter.
template <typename T>
std::optional<T> frame_as(Channel::Frame frame) {
  if (frame.size() < sizeof(T)) return {};
  T value{};
  std::memcpy(&value, frame.data(), sizeof value);
  return value;
}

// The text that follows the fixed part, as valid UTF-8; none: the frame does not end with it.
template <typename T>
std::optional<std::string> frame_text(Channel::Frame frame, const T& value) {
  if (frame.size() != sizeof value + value.text_bytes) return {};
  return utf8({reinterpret_cast<const char*>(frame.data()) + sizeof value, value.text_bytes});
}

}  // namespace spdld::delivery
