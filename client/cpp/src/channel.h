// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "posix/unique_fd.h"
#include "posix/zombie.h"
#include "spdld/wire.h"

namespace spdld::client {

// One connection to a daemon. Shared by the loader and by every lease that was given over it, and
// closed when the last of them lets go: the daemon thus sees a hang-up only when nothing of its
// memory is read any more. The loader's thread sends and receives; leases end on any thread, and in
// a forked child not at all. After lost(), ending one tells nobody.
class Channel {
 public:
  struct HeldBatch {
    std::uint64_t lease;
    std::uint64_t epoch;
    std::uint64_t step;
  };

  // What receive() found.
  enum class Got { kFrame, kNothing, kHangUp };

  // Null, and `why` says so, when nobody listens there, or with `denied` when it is closed to this
  // user. Throws ConnectionError when it is neither root, nor this process's user, nor the owner of
  // the directory who does.
  static std::shared_ptr<Channel> connect(const std::string& path, std::string& why, bool& denied);

  int fd() const { return socket_.get(); }
  // The daemon was killed, and its end of the socket is open for as long as a thread of it hangs in
  // the kernel. False where its process cannot be seen.
  bool is_deserted() const { return is_zombie(daemon_); }
  bool in_owner() const { return ::getpid() == owner_; }

  // Without waiting. A frame longer than the buffer, or whose fd got lost, counts as a hang-up, and
  // `why` says so.
  Got receive(std::span<std::byte> buffer, std::size_t& bytes, UniqueFd& fd, std::string& why);
  // False: the socket is full (`full`), or the daemon is gone.
  bool send(const void* frame, std::size_t bytes, bool& full);
  void lost();
  bool is_lost() const;

  void hold(const HeldBatch& batch);
  void end(std::uint64_t lease);
  void forget(std::uint64_t lease);  // the daemon takes it back when the connection ends
  // Tells the daemon that the caller has been handed so many batches of the run. Said before the
  // end of any lease that ends later, and like those as soon as the socket has room.
  void handed(std::uint64_t turn);
  std::uint32_t held() const;
  std::vector<HeldBatch> held_batches() const;

 private:
  Channel(UniqueFd socket, pid_t daemon)
      : socket_(std::move(socket)), daemon_(daemon), owner_(::getpid()) {}
  // False: the socket is full.
  bool say(const void* frame, std::size_t bytes);
  void say_unsent();
  void erase_held(std::uint64_t lease);

  const UniqueFd socket_;
  const pid_t daemon_;  // who listens there
  const pid_t owner_;
  mutable std::mutex mutex_;  // guards what follows
  bool lost_ = false;
  std::vector<HeldBatch> held_;
  std::vector<std::uint64_t> unsent_;         // ended while the socket was full
  std::optional<std::uint64_t> unsent_turn_;  // likewise of handed(); the last one says it all
};

}  // namespace spdld::client
