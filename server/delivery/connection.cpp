// SPDX-License-Identifier: Apache-2.0
#include "delivery/connection.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"

namespace spdld::delivery {
namespace {

template <typename T>
Frame bytes_of(const T& frame) {
  Frame bytes(sizeof frame);
  std::memcpy(bytes.data(), &frame, sizeof frame);
  return bytes;
}

}  // namespace

Connection::Connection(std::uint64_t id, UniqueFd socket, const Peer& peer,
                       std::shared_ptr<UserBytes> unread, std::function<void()> wants_dispatcher)
    : id_(id),
      peer_(peer),
      wants_dispatcher_(std::move(wants_dispatcher)),
      socket_(std::move(socket)),
      unread_(std::move(unread), peer.uid) {}

void Connection::welcome(const std::string& client, std::span<const std::uint8_t, 16> generation,
                         const std::string& server) {
  client_ = client;
  (void)send({.head = welcome_frame(generation, server)});
}

bool Connection::send_progress(std::uint64_t done, std::uint64_t total, const std::string& text) {
  return send({.head = progress_frame(done, total, text)});
}

bool Connection::send_standstill(const std::string& text) {
  return send({.head = standstill_frame(text)});
}

bool Connection::send_notice(const std::string& text) { return send({.head = notice_frame(text)}); }

bool Connection::send_runners_wanted(const std::string& pool) {
  return send({.head = runners_wanted_frame(pool)});
}

bool Connection::send_attached(const AttachReply& reply) {
  return send({.head = attached_frame(reply)});
}

bool Connection::send_arena_open(const Arena& arena) {
  wire::ArenaOpenFrame frame{};
  frame.header = {wire::FrameType::kArenaOpen, sizeof frame};
  frame.arena_id = arena.id();
  frame.kind = static_cast<std::uint32_t>(arena.shape().kind);
  frame.total_bytes = arena.total_bytes();
  std::copy(arena.generation().begin(), arena.generation().end(), frame.generation);
  SPDLD_FAILPOINT("delivery.arena.send");
  return send_fd(bytes_of(frame), arena.client_fd(), "sending an arena (raise LimitNOFILE)");
}

bool Connection::send_device_arena(std::uint32_t arena_id, const DeviceArena& memory) {
  wire::DeviceArenaFrame frame{};
  frame.header = {wire::FrameType::kDeviceArena, sizeof frame};
  frame.arena_id = arena_id;
  frame.kind = memory.kind();
  frame.total_bytes = memory.total_bytes();
  return send_fd(bytes_of(frame), memory.client_fd(),
                 "sending memory of a GPU (raise LimitNOFILE)");
}

// A queued frame outlives the call, and perhaps what the fd is of.
bool Connection::send_fd(Frame frame, int fd, const char* what) {
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) {
    (void)fail(errno_status(errno, what));
    return false;
  }
  return send({.head = std::move(frame), .fd = std::move(own)});
}

bool Connection::send_arena_retire(std::uint32_t arena_id) {
  wire::ArenaRetireFrame frame{};
  frame.header = {wire::FrameType::kArenaRetire, sizeof frame};
  frame.arena_id = arena_id;
  return send_bytes(&frame, sizeof frame);
}

bool Connection::send_version(const VersionNotice& notice) {
  return send({.head = version_frame(notice)});
}

bool Connection::send_schema(std::uint32_t schema_id, std::uint32_t pipeline_version,
                             std::span<const wire::FieldLayout> fields) {
  // What compiles a pipeline keeps it within what one frame can tell.
  SPDLD_CHECK(sizeof(wire::SchemaFrame) + fields.size_bytes() <= wire::kMaxFrameBytes);
  return send({.head = schema_frame(schema_id, pipeline_version, fields)});
}

bool Connection::send_batch(const BatchNotice& notice) {
  const wire::BatchFrame frame = batch_frame(notice);
  SPDLD_FAILPOINT("delivery.batch.send");
  const bool sent = send_bytes(&frame, sizeof frame);
  SPDLD_FAILPOINT("delivery.batch.sent");
  return sent;
}

bool Connection::send_device_batch(const BatchNotice& notice, DevicePlace place) {
  wire::DeviceBatchFrame frame{};
  frame.batch = batch_frame(notice);
  frame.batch.header = {wire::FrameType::kDeviceBatch, sizeof frame};
  frame.device_offset = place.offset;
  frame.device_bytes = place.bytes;
  return send_bytes(&frame, sizeof frame);
}

bool Connection::send_epoch_end(std::uint64_t epoch, std::uint64_t steps, std::uint32_t seek,
                                bool last) {
  wire::EpochEndFrame frame{};
  frame.header = {wire::FrameType::kEpochEnd, sizeof frame};
  frame.epoch = epoch;
  frame.steps = steps;
  frame.seek = seek;
  frame.last = last ? 1 : 0;
  return send_bytes(&frame, sizeof frame);
}

bool Connection::send_reset(const ResetNotice& notice) {
  wire::ResetFrame frame{};
  frame.header = {wire::FrameType::kReset, sizeof frame};
  frame.epoch = notice.to.epoch;
  frame.position = notice.to.position;
  frame.step = notice.to.step;
  frame.steps_per_epoch = notice.steps_per_epoch;
  frame.seek = notice.seek;
  frame.shard = static_cast<std::int32_t>(notice.shard);
  frame.num_shards = static_cast<std::int32_t>(notice.num_shards);
  return send_bytes(&frame, sizeof frame);
}

bool Connection::send_applied(std::uint32_t serial, const AppliedNotice& notice) {
  return send({.head = applied_frame(serial, notice)});
}

bool Connection::send_refused(std::uint32_t serial, const Status& why) {
  return send({.head = refused_frame(serial, why)});
}

bool Connection::send_blob(wire::BlobKind kind, std::uint32_t serial,
                           std::shared_ptr<const std::string> text, Text memory) {
  constexpr std::size_t kPart = wire::kMaxFrameBytes - sizeof(wire::BlobFrame);
  if (text->size() > wire::kMaxBlobBytes) {
    return send_error(Status(Code::kOutOfRange, "the answer is too long for the data socket"));
  }
  std::size_t offset = 0;
  do {  // an empty text is one part, too
    const std::size_t part = std::min(kPart, text->size() - offset);
    wire::BlobFrame frame{};
    frame.header = {wire::FrameType::kBlob, static_cast<std::uint32_t>(sizeof frame + part)};
    frame.kind = kind;
    frame.serial = serial;
    frame.offset = static_cast<std::uint32_t>(offset);
    frame.total_bytes = static_cast<std::uint32_t>(text->size());
    Outgoing out{.head = bytes_of(frame), .tail = text, .tail_offset = offset, .tail_bytes = part};
    offset += part;
    // The text stays whole until its last part is out.
    if (memory == Text::kOwn && offset == text->size()) out.held_bytes = text->size();
    if (!send(std::move(out))) return false;
  } while (offset < text->size());
  return true;
}

bool Connection::send_error(const Status& status) {
  return send({.head = error_frame(status, /*fatal=*/false)});
}

bool Connection::fail(const Status& status) { return finish(error_frame(status, /*fatal=*/true)); }

bool Connection::bye(wire::ByeReason reason, const std::string& text) {
  return finish(bye_frame(reason, text));
}

bool Connection::ending() const {
  MutexLock lock(mutex_);
  return ending_ || broken_ || !socket_;
}

bool Connection::send(Outgoing frame) {
  bool wake = false;
  bool sent = false;
  {
    MutexLock lock(mutex_);
    if (ending_ || broken_ || !socket_) return false;
    lent_ = lent_ || frame.fd;
    const Flow flow = queue_.empty() ? write(frame) : Flow::kBlocked;
    sent = flow != Flow::kBroken;
    if (flow == Flow::kBlocked) {
      wake = true;
      sent = enqueue(std::move(frame));
      if (!sent) broken_ = overflowed_ = true;
    } else if (flow == Flow::kBroken) {
      broken_ = true;  // its hang-up reaches the dispatcher by itself
    }
  }
  if (wake) wants_dispatcher_();
  return sent;
}

bool Connection::enqueue(Outgoing frame) {
  frame.held_bytes += sizeof frame + frame.head.size();
  if (queue_.size() >= kMaxQueuedFrames || unread_.bytes() + frame.held_bytes > kMaxQueuedBytes ||
      !unread_.add(frame.held_bytes)) {
    return false;
  }
  queue_.push_back(std::move(frame));
  return true;
}

// The same for the small frames of the steady state: no allocation unless the socket is full.
bool Connection::send_bytes(const void* frame, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(frame);
  {
    MutexLock lock(mutex_);
    if (ending_ || broken_ || !socket_) return false;
    if (queue_.empty()) {
      const ssize_t sent = ::send(socket_.get(), frame, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return true;
    }
  }
  return send({.head = Frame(at, at + bytes)});
}

bool Connection::finish(Frame last) {
  {
    MutexLock lock(mutex_);
    if (ending_ || broken_ || !socket_) return false;
    ending_ = true;
    Outgoing frame{.head = std::move(last)};
    const Flow flow = queue_.empty() ? write(frame) : Flow::kBlocked;
    if (flow == Flow::kBlocked) {
      // The last word is said however much is queued: there is only one.
      if (unread_.add(frame.head.size())) frame.held_bytes = frame.head.size();
      queue_.push_back(std::move(frame));
    }
    if (flow == Flow::kBroken) broken_ = true;
  }
  wants_dispatcher_();
  return true;
}

Connection::Flow Connection::write(const Outgoing& frame) {
  iovec parts[2];
  parts[0].iov_base = const_cast<std::byte*>(frame.head.data());  // sendmsg only reads it
  parts[0].iov_len = frame.head.size();
  if (frame.tail) {
    parts[1].iov_base = const_cast<char*>(frame.tail->data()) + frame.tail_offset;
    parts[1].iov_len = frame.tail_bytes;
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = frame.tail ? 2 : 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (frame.fd) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = frame.fd.get();
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  for (;;) {
    if (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Flow::kDone;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return Flow::kBlocked;
    return Flow::kBroken;
  }
}

Connection::Flow Connection::flush() {
  MutexLock lock(mutex_);
  while (!queue_.empty()) {
    if (broken_ || !socket_) return Flow::kBroken;
    const Flow flow = write(queue_.front());
    if (flow == Flow::kBroken) broken_ = true;
    if (flow != Flow::kDone) return flow;
    unread_.remove(queue_.front().held_bytes);
    queue_.pop_front();
  }
  return Flow::kDone;
}

bool Connection::overflowed() const {
  MutexLock lock(mutex_);
  return overflowed_;
}

bool Connection::finished() const {
  MutexLock lock(mutex_);
  return ending_ && (queue_.empty() || broken_);
}

bool Connection::lent() const {
  MutexLock lock(mutex_);
  return lent_;
}

int Connection::socket() const {
  MutexLock lock(mutex_);
  return socket_.get();
}

UniqueFd Connection::close() {
  MutexLock lock(mutex_);
  broken_ = true;
  unread_.remove(unread_.bytes());
  queue_.clear();
  return std::move(socket_);
}

}  // namespace spdld::delivery
