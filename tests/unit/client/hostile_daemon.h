// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "delivery/arena.h"
#include "delivery/frames.h"
#include "delivery/peer.h"
#include "spdld/loader.h"
#include "tests/support/received_frame.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/delivery/raw_frames.h"

// A daemon that says what a test wants it to say: of another version, or a broken one.
namespace spdld::test {

// One consumer's end, as the daemon sees it.
class Conversation {
 public:
  explicit Conversation(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool receive() { return receive_frame(fd_).has_value(); }
  // The next frame of this type; what comes before it is dropped. False: the consumer hung up.
  template <typename T>
  bool receive(T& out, wire::FrameType type) {
    while (const auto frame = receive_frame(fd_)) {
      out = frame->as<T>();
      if (frame->type() == type) return true;
    }
    return false;
  }
  void send(const Bytes& frame, int passed = -1) {
    iovec part{const_cast<std::byte*>(frame.data()), frame.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (passed >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &passed, sizeof passed);
    }
    (void)::sendmsg(fd_, &message, MSG_NOSIGNAL);
  }
  // Hello and Attach, answered as they should be.
  void attach() {
    const std::uint8_t generation[16] = {};
    receive();
    send(delivery::welcome_frame(generation, "hostile"));
    receive();
    send(delivery::attached_frame({.session = 1,
                                   .items = 8,
                                   .steps_per_epoch = 9,
                                   .batch_size = 2,
                                   .credits = 4,
                                   .pipeline_version = 1}));
  }
  void open(const delivery::Arena& arena,
            const std::function<void(wire::ArenaOpenFrame&)>& change = {}) {
    wire::ArenaOpenFrame frame{};
    frame.arena_id = arena.id();
    frame.kind = static_cast<std::uint32_t>(arena.shape().kind);
    frame.total_bytes = arena.total_bytes();
    std::copy(arena.generation().begin(), arena.generation().end(), frame.generation);
    if (change) change(frame);
    send(bytes_of(frame, wire::FrameType::kArenaOpen), arena.client_fd());
  }
  void schema(const std::vector<wire::FieldLayout>& fields, std::uint32_t id = 1,
              std::uint32_t version = 1) {
    send(delivery::schema_frame(id, version, fields));
  }
  void version(std::uint32_t version) {
    send(delivery::version_frame({.items = 80,
                                  .steps_per_epoch = 90,
                                  .batch_size = 20,
                                  .pipeline_version = version,
                                  .order_digest = "new"}));
  }
  void retire(std::uint32_t arena_id) {
    wire::ArenaRetireFrame frame{};
    frame.arena_id = arena_id;
    send(bytes_of(frame, wire::FrameType::kArenaRetire));
  }
  void applied(std::uint32_t serial, const delivery::AppliedNotice& notice) {
    send(delivery::applied_frame(serial, notice));
  }
  void batch(const delivery::Arena& arena,
             const std::function<void(wire::BatchFrame&)>& change = {}) {
    wire::BatchFrame frame = delivery::batch_frame({.lease = 1,
                                                    .arena_id = arena.id(),
                                                    .schema_id = 1,
                                                    .slot_offset = arena.slot_offset(0),
                                                    .slot_bytes = arena.shape().slot_bytes,
                                                    .rows = 2});
    if (change) change(frame);
    send(bytes_of(frame, wire::FrameType::kBatch));
  }

 private:
  const int fd_;
};

inline wire::FieldLayout dense(std::int64_t width) {
  wire::FieldLayout field{};
  std::strcpy(field.name, "image");
  field.kind = wire::FieldKind::kDense;
  field.dtype = wire::DType::kUInt8;
  field.ndim = 1;
  field.shape[0] = width;
  return field;
}

// Plays a daemon that follows `script` with everyone who connects.
class HostileDaemon {
 public:
  explicit HostileDaemon(std::function<void(Conversation&)> script) : script_(std::move(script)) {
    listener_ =
        std::move(*delivery::listen_unix(lock_, dir_.path() + "/data.sock", SOCK_SEQPACKET, 0666));
    thread_ = std::thread([this] {
      for (;;) {
        UniqueFd socket(::accept(blocking_listener(), nullptr, nullptr));
        if (stopping_.load() || !socket) return;
        Conversation conversation(socket.get());
        script_(conversation);
      }
    });
  }
  ~HostileDaemon() {
    stopping_.store(true);
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  // Long enough for a busy machine; where the silence itself is the test, it is given.
  LoaderOptions options(
      std::chrono::milliseconds patience = std::chrono::milliseconds(1500)) const {
    return {.pipeline = "p",
            .job = "",
            .rank = 0,
            .world_size = 1,
            .address = dir_.path(),
            .timeout = patience,
            .connect_timeout = std::chrono::milliseconds(20)};
  }
  Loader loader(std::chrono::milliseconds patience = std::chrono::milliseconds(1500)) const {
    return Loader::open(options(patience));
  }
  // From here on the kernel says that this user listens. As root alone.
  void listen_as(uid_t uid) {
    ASSERT_EQ(::seteuid(uid), 0);
    const int failed = ::listen(listener_.get(), 16);
    ASSERT_EQ(::seteuid(0), 0);
    ASSERT_EQ(failed, 0);
  }
  const std::string& directory() const { return dir_.path(); }
  std::string next_says(
      std::chrono::milliseconds patience = std::chrono::milliseconds(1500)) const {
    Loader loader = this->loader(patience);
    try {
      loader.next();
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "it was accepted";
    return "";
  }

 private:
  int blocking_listener() const {
    const int flags = ::fcntl(listener_.get(), F_GETFL);
    ::fcntl(listener_.get(), F_SETFL, flags & ~O_NONBLOCK);
    return listener_.get();
  }

  const std::function<void(Conversation&)> script_;
  ScratchDir dir_;
  delivery::RuntimeLock lock_ = std::move(*delivery::RuntimeLock::take(dir_.path()));
  UniqueFd listener_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace spdld::test
