// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spdld/wire.h"

namespace spdld::test {

// A frame of the data socket as it came, right or wrong.
class ReceivedFrame {
 public:
  explicit ReceivedFrame(std::span<const std::byte> bytes) : bytes_(bytes.begin(), bytes.end()) {}

  std::size_t size() const { return bytes_.size(); }
  wire::FrameType type() const { return as<wire::FrameHeader>().type; }
  // Its fixed part; what is missing of it is zero.
  template <typename Frame>
  Frame as() const {
    Frame frame{};
    std::memcpy(&frame, bytes_.data(), std::min(sizeof frame, bytes_.size()));
    return frame;
  }
  // What follows the fixed part.
  template <typename Frame>
  std::string text_behind() const {
    const std::size_t fixed = std::min(sizeof(Frame), bytes_.size());
    return std::string(reinterpret_cast<const char*>(bytes_.data()) + fixed, bytes_.size() - fixed);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Blocks until a frame comes. None: the other end hung up, with ECONNRESET once before its last
// frames if it left some of ours unread.
inline std::optional<ReceivedFrame> receive_frame(int socket) {
  std::array<std::byte, wire::kMaxFrameBytes> bytes;
  for (bool reset = false;;) {
    const ssize_t size = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (size > 0) return ReceivedFrame(std::span(bytes).first(static_cast<std::size_t>(size)));
    if (size == 0 || errno != ECONNRESET || std::exchange(reset, true)) return std::nullopt;
  }
}

}  // namespace spdld::test
