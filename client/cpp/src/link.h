// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batch_state.h"
#include "channel.h"
#include "mapping.h"
#include "spdld/loader.h"
#include "spdld/wire.h"
#include "waiting.h"

namespace spdld::client {

// Thrown inside the library alone: the connection is gone, and another one may be tried.
struct LinkLost {
  std::string why;
};

// What the daemon answered to an attach.
struct Attached {
  wire::AttachedFrame frame{};
  std::string order_digest;
  std::string pipeline;
  std::string job;
  std::string server;  // name and version of the daemon
};

// What a loader asks for when it attaches.
struct AttachWish {
  wire::AttachFrame frame{};
  std::vector<std::pair<wire::TextKey, std::string>> texts;
  std::string yaml;
};

// One attached connection: handshake, frames in and out, the arenas and schemas that it was told
// of. Used by the loader's thread alone. Ends with LinkLost when the connection does, with
// ConnectionError or PipelineError when the daemon refuses. Its leases outlive it.
class Link {
 public:
  // Waits in `waiting` until the daemon has answered.
  Link(const std::string& socket_path, const std::string& client_name, const AttachWish& wish,
       Waiting& waiting);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const Attached& attached() const { return attached_; }
  const std::shared_ptr<Channel>& channel() const { return channel_; }

  // The next frame that matters to a reader (Batch, EpochEnd, Reset), valid until the next call;
  // null when none is there yet. Progress goes to `waiting`, if there is one. Throws on Error and
  // Bye.
  const wire::FrameHeader* poll(Waiting* waiting);
  // Lets the caller sleep until poll() may find something.
  bool wait(Waiting& waiting, std::chrono::milliseconds at_most);

  // Makes the batch of a Batch frame. Throws ConnectionError if it makes no sense.
  std::shared_ptr<BatchState> batch(const wire::BatchFrame& frame);
  void release(std::uint64_t lease);  // a batch that nobody wants to see

  void seek(const Cursor& to, std::uint32_t serial, Waiting& waiting);
  std::string query(wire::QueryKind kind, Waiting& waiting);
  void detach();

 private:
  struct Received {
    std::vector<std::byte> bytes;
    UniqueFd fd;
  };

  void send(const void* frame, std::size_t bytes, Waiting& waiting);
  void send_wish(const AttachWish& wish, Waiting& waiting);
  // The next frame from the socket, of any kind; empty when none is there.
  std::span<const std::byte> receive();
  std::span<const std::byte> await(Waiting& waiting);
  // Deals with the frames that may come at any time. False: it is none of them.
  bool digest(std::span<const std::byte> frame, Waiting* waiting);
  void open_arena(std::span<const std::byte> frame);
  void read_attached(std::span<const std::byte> frame);
  [[noreturn]] void lose(const std::string& why);

  std::shared_ptr<Channel> channel_;
  Attached attached_;
  bool welcomed_ = false;
  bool serving_ = false;  // has attached
  std::vector<std::byte> buffer_;
  UniqueFd fd_;                    // came with the frame in buffer_
  std::deque<Received> deferred_;  // came while an answer was waited for
  Received current_;
  std::vector<std::pair<std::uint32_t, std::shared_ptr<Mapping>>> arenas_;
  std::vector<std::shared_ptr<const Schema>> schemas_;
  std::uint32_t query_serial_ = 0;
};

}  // namespace spdld::client
