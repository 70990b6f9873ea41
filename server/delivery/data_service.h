// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "delivery/connection.h"
#include "delivery/frames.h"

namespace spdld::delivery {

enum class CloseCause {
  kExit,      // the process has ended
  kHangUp,    // the socket was closed; the process may live
  kProtocol,  // it sent what no consumer sends
  kOverflow,  // it did not read
  kServer,    // fail(), bye(), or the server stops
};

using ConnectionPtr = std::shared_ptr<Connection>;

// What consumers ask, answered by the session layer. Called on the dispatcher's thread, one call at
// a time, and must not block: long work goes elsewhere and answers through the connection.
//
// For each connection: attach once, then the others in any number and order, then closed() once,
// then exited() once. Between closed() and exited() the process may still read what it holds: its
// slots are retired. After exited() nobody does: they are reclaimed.
class DataService {
 public:
  virtual ~DataService() = default;

  // Answered by send_attached(), before it any number of send_progress(), or by fail().
  virtual void attach(const ConnectionPtr& connection, AttachRequest request) = 0;
  virtual void release(Connection& connection, std::uint64_t lease) = 0;
  // Answered by send_reset() with the seek's serial.
  virtual void seek(Connection& connection, const SeekRequest& request) = 0;
  // Comes for each batch that was sent with `tell`, unless the consumer releases it unseen.
  virtual void handed(Connection& connection, const HandedNotice& notice) = 0;
  virtual void query(Connection& connection, const QueryRequest& request) = 0;
  // Answered by send_applied() or send_refused() with the wish's serial.
  virtual void apply(Connection& connection, const ApplyWish& wish) = 0;
  virtual void waited(Connection& connection, const WaitedNotice& notice) = 0;
  // The consumer wants no more batches. It releases what it holds, then hangs up.
  virtual void detach(Connection& connection) = 0;
  virtual void closed(Connection& connection, CloseCause cause) = 0;
  virtual void exited(Connection& connection) = 0;
};

}  // namespace spdld::delivery
