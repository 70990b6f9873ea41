// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "announced.h"
#include "batch_state.h"
#include "channel.h"
#include "spdld/loader.h"
#include "spdld/wire.h"
#include "waiting.h"

namespace spdld::client {

// Thrown inside the library alone: the connection is gone, and another one may be tried.
struct LinkLost {
  std::string why;
  bool answered = true;  // false: nobody was there to connect to
  bool denied = false;   // the socket is closed to this user, and `why` says the way out
};

// What the daemon answered to an attach. The facts change with the version of the pipeline.
struct Attached {
  wire::AttachedFrame frame{};
  Facts facts;
  std::string pipeline;
  std::string job;
  std::string server;                      // name and version of the daemon
  std::vector<std::string> warnings = {};  // of the pipeline
  std::string device = {};                 // UUID of the GPU that batches lie on; empty: on none
};

// What a loader asks for when it attaches.
struct AttachWish {
  wire::AttachFrame frame{};
  std::vector<std::pair<wire::TextKey, std::string>> texts;
  std::string yaml;
  std::function<void(const std::string& pool)> start_runners = {};  // LoaderOptions'
};

// What the loader's job is to go on with.
struct ApplyWish {
  std::map<std::string, std::string> vars;
  wire::ApplyAt at{};
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool allow_schema_change = false;
};

// One attached connection: handshake, frames in and out, requests and their answers. Used by the
// loader's thread alone. Ends with LinkLost when the connection does, with ConnectionError or
// PipelineError when the daemon refuses or makes no sense; it is of no use any more once its
// channel is lost. Its leases outlive it.
class Link {
 public:
  // Waits in `waiting` until the daemon has answered. `device` outlives it, and may be null.
  Link(const std::string& socket_path, const std::string& client_name, const AttachWish& wish,
       DeviceArenas* device, Waiting& waiting);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const Attached& attached() const { return attached_; }
  const std::shared_ptr<Channel>& channel() const { return channel_; }

  // Of the batch that poll() gives next, or has just given.
  const Facts& facts() const { return announced_.facts(); }
  std::uint32_t facts_number() const { return announced_.facts_number(); }

  // The next frame that matters to a reader (Batch, DeviceBatch, EpochEnd, Reset, Notice), valid
  // until the next call; null when none is there yet. Progress goes to `waiting`, if there is one.
  // Throws on Error and Bye, and DeviceError where memory on the device cannot be had.
  const wire::FrameHeader* poll(Waiting* waiting);
  // Lets the caller sleep until poll() may find something.
  bool wait(Waiting& waiting, std::chrono::milliseconds at_most);

  // The text of a Notice that poll() has just given.
  static std::string notice_text(const wire::FrameHeader& frame);
  // Makes the batch of a Batch or DeviceBatch frame. Throws ConnectionError if it makes no sense.
  std::shared_ptr<BatchState> batch(const wire::BatchFrame& frame) { return make(frame); }
  std::shared_ptr<BatchState> batch(const wire::DeviceBatchFrame& frame) { return make(frame); }
  void release(std::uint64_t lease);  // a batch that nobody wants to see

  // The loop, handed `turn` batches by then, goes to the start of `epoch`; or so many steps further
  // than `from`.
  void seek(std::uint64_t turn, std::uint64_t epoch, std::uint32_t serial, Waiting& waiting);
  void skip(const Cursor& from, std::uint32_t steps, std::uint32_t serial, Waiting& waiting);
  // What belongs to the stream and comes before the answer is kept for poll().
  std::string query(wire::QueryKind kind, Waiting& waiting);
  // Of at most wire::kMaxUris items; NUL after each. Throws PipelineError if the daemon refuses.
  std::string uris(std::span<const std::int64_t> items, const std::string& order_digest,
                   Waiting& waiting);
  // Tells how the caller's loop fares, if the daemon can be told at once.
  void tell_waited(wire::WaitedFrame frame);
  Applied apply(const ApplyWish& wish, Waiting& waiting);
  // No more batches, please. The connection ends with the last lease.
  void detach();

 private:
  // More than the daemon would ever have to send before an answer.
  static constexpr std::size_t kMaxDeferred = 4096;
  struct Received {
    std::vector<std::byte> bytes;
    UniqueFd fd;
  };

  void send(const void* frame, std::size_t bytes, Waiting& waiting);
  bool wait_for(short events, Waiting& waiting, std::chrono::milliseconds at_most);
  void send_wish(const AttachWish& wish, Waiting& waiting);
  // The next frame from the socket, of any kind; empty when none is there.
  std::span<const std::byte> receive();
  std::span<const std::byte> await(Waiting& waiting);
  // Sends a query and returns its serial.
  std::uint32_t ask(wire::QueryKind kind, std::span<const std::byte> more, Waiting& waiting);
  // The next Blob or Applied frame that answers request `serial`, valid until the next frame is
  // received; what belongs to the stream is kept for poll(). Throws PipelineError for a Refused.
  std::span<const std::byte> answer(std::uint32_t serial, Waiting& waiting);
  template <typename Frame>
  bool answers(std::span<const std::byte> frame, std::uint32_t serial);
  // The text of the Blob frames that answer request `serial`.
  std::string blob(wire::BlobKind kind, std::uint32_t serial, Waiting& waiting);
  // Deals with the frames that may come at any time. False: it is none of them.
  bool digest(std::span<const std::byte> frame, Waiting* waiting);
  bool announces(std::span<const std::byte> frame);
  template <typename Frame>
  std::shared_ptr<BatchState> make(const Frame& frame);
  void read_attached(std::span<const std::byte> frame);
  [[noreturn]] void lose(const std::string& why);

  std::shared_ptr<Channel> channel_;
  const std::function<void(const std::string& pool)> start_runners_;  // may be empty
  Attached attached_;
  bool welcomed_ = false;
  bool heard_early_ = false;  // an end that comes after what is deferred
  bool comes_back_ = false;   // the daemon has said so: the consumer is to attach again
  bool serving_ = false;      // has attached
  std::vector<std::byte> buffer_;
  UniqueFd fd_;                    // came with the frame in buffer_
  std::deque<Received> deferred_;  // came while an answer was waited for
  Received current_;
  Announced announced_;
  std::uint32_t serial_ = 0;  // of the last request that is answered by a text
};

}  // namespace spdld::client
