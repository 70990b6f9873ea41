// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "base/users/credentials.h"
#include "base/users/user_bytes.h"
#include "delivery/arena.h"
#include "delivery/device_memory.h"
#include "delivery/frames.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

// One consumer's end of the data socket. Made by DataServer; shared by it, the session layer, and
// workers that send what they have finished. Every send may be called from any thread, never
// blocks, and keeps the order of calls: what the socket does not take is queued and goes out when
// it can. Sends return false, and do nothing, once the connection is closed or ending. A consumer
// that lets the queue overflow, or whose user's queues have reached what they may all take, is
// disconnected (CloseCause::kOverflow).
class Connection {
 public:
  static constexpr std::size_t kMaxQueuedFrames = 2048;
  // One answer of the largest size, and what goes along with it.
  static constexpr std::uint64_t kMaxQueuedBytes = wire::kMaxBlobBytes + (1u << 20);

  // `unread` bounds what the queues of one user take.
  Connection(std::uint64_t id, UniqueFd socket, const Peer& peer, std::shared_ptr<UserBytes> unread,
             std::function<void()> wants_dispatcher);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::uint64_t id() const { return id_; }  // never reused in a daemon's life
  const Peer& peer() const { return peer_; }
  const std::string& client() const { return client_; }  // as its Hello said

  bool send_progress(std::uint64_t done, std::uint64_t total, const std::string& text);
  bool send_standstill(const std::string& text);  // what it waits for; counts as silence
  // Sends a warning to the consumer's user; nothing has failed.
  bool send_notice(const std::string& text);
  // Has the consumer, which said that it would, start a process for this pool (RunnerPool::key).
  bool send_runners_wanted(const std::string& pool);
  bool send_attached(const AttachReply& reply);
  bool send_arena_open(const Arena& arena);
  // Right after the arena that it belongs to. Only to a consumer that has named a GPU; batches that
  // lie there, likewise.
  bool send_device_arena(std::uint32_t arena_id, const DeviceArena& memory);
  bool send_arena_retire(std::uint32_t arena_id);
  bool send_version(const VersionNotice& notice);
  bool send_schema(std::uint32_t schema_id, std::uint32_t pipeline_version,
                   std::span<const wire::FieldLayout> fields);
  bool send_batch(const BatchNotice& notice);
  bool send_device_batch(const BatchNotice& notice, DevicePlace place);
  bool send_epoch_end(std::uint64_t epoch, std::uint64_t steps, std::uint32_t seek, bool last);
  bool send_reset(const ResetNotice& notice);
  bool send_applied(std::uint32_t serial, const AppliedNotice& notice);  // answers an apply
  // Answers an apply or a query.
  bool send_refused(std::uint32_t serial, const Status& why);
  // Answers a query; `text` is shared, not copied, and at most wire::kMaxBlobBytes
  // long. One that is kept anyway, whether or not it is read, is not counted as this user's.
  enum class Text { kOwn, kKept };
  bool send_blob(wire::BlobKind kind, std::uint32_t serial, std::shared_ptr<const std::string> text,
                 Text memory = Text::kOwn);
  // Tells of a failure and goes on.
  bool send_error(const Status& status);

  // The connection ends once what is queued has gone out, the last word included. DataService is
  // told by closed(); until then requests are ignored, but releases still arrive.
  bool fail(const Status& status);  // by an Error
  bool bye(wire::ByeReason reason, const std::string& text);

  bool ending() const;  // fail() or bye() was called, or it is closed

 private:
  friend class DataServer;
  friend class Dialogue;
  struct Outgoing {
    Frame head = {};
    std::shared_ptr<const std::string> tail = {};  // a part of it follows the head
    std::size_t tail_offset = 0;
    std::size_t tail_bytes = 0;
    std::uint64_t held_bytes = 0;  // in memory for as long as it is queued
    UniqueFd fd = {};
  };
  enum class Flow { kDone, kBlocked, kBroken };

  bool send(Outgoing frame) SPDLD_EXCLUDES(mutex_);
  // With an fd of its own that is the same file.
  bool send_fd(Frame frame, int fd, const char* what) SPDLD_EXCLUDES(mutex_);
  bool send_bytes(const void* frame, std::size_t bytes) SPDLD_EXCLUDES(mutex_);
  Flow write(const Outgoing& frame) SPDLD_REQUIRES(mutex_);
  // False: there is no room for it.
  bool enqueue(Outgoing frame) SPDLD_REQUIRES(mutex_);
  bool finish(Frame last) SPDLD_EXCLUDES(mutex_);

  // The dispatcher's part.
  void welcome(const std::string& client, std::span<const std::uint8_t, 16> generation,
               const std::string& server) SPDLD_EXCLUDES(mutex_);
  Flow flush() SPDLD_EXCLUDES(mutex_);
  bool overflowed() const SPDLD_EXCLUDES(mutex_);
  bool finished() const SPDLD_EXCLUDES(mutex_);  // ending, and nothing left to send
  int socket() const SPDLD_EXCLUDES(mutex_);
  UniqueFd close() SPDLD_EXCLUDES(mutex_);
  bool lent() const SPDLD_EXCLUDES(mutex_);  // an arena was sent

  const std::uint64_t id_;
  const Peer peer_;
  const std::function<void()> wants_dispatcher_;  // called from any thread, under no lock
  // Set before others see the connection.
  std::string client_;
  mutable Mutex mutex_;
  UniqueFd socket_ SPDLD_GUARDED_BY(mutex_);
  std::deque<Outgoing> queue_ SPDLD_GUARDED_BY(mutex_);
  UserBytes::Share unread_ SPDLD_GUARDED_BY(mutex_);  // what the queue takes
  bool ending_ SPDLD_GUARDED_BY(mutex_) = false;
  bool broken_ SPDLD_GUARDED_BY(mutex_) = false;
  bool overflowed_ SPDLD_GUARDED_BY(mutex_) = false;
  bool lent_ SPDLD_GUARDED_BY(mutex_) = false;
};

}  // namespace spdld::delivery
