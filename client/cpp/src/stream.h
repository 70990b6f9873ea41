// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrivals.h"
#include "attach.h"
#include "launch_env.h"
#include "link.h"
#include "loader_device.h"
#include "loop_times.h"
#include "process_facts.h"
#include "spdld/loader.h"
#include "waiting.h"

namespace spdld::client {

// Where a loader stands in its job's stream of batches, and the connection that the stream comes
// over. Attaches at the first call that needs the daemon, and again when the connection is lost:
// from the position after the last batch handed out. Owned by Loader; one thread at a time. A
// connection that failed for good is let go at once, and with it all memory that no lease is in.
class Stream {
 public:
  // `options` outlives it. Throws DeviceError if the device that they name cannot be had.
  Stream(const LoaderOptions& options, Placement place, std::string address);

  // A batch, or nothing at the end of an epoch. Where the daemon asks to be told that the batch was
  // handed out, it is told so; with `asks` that is left to the caller, by handed().
  std::optional<Batch> next(bool* asks = nullptr);
  void handed(std::uint64_t turn);
  // On any thread.
  void mapped(std::chrono::nanoseconds took);
  void go_to(const Cursor& cursor);
  void skip(std::uint64_t steps);
  // Without a word of where the ledger has it while that is unknown().
  Cursor state() const;
  bool unknown() const;
  bool finished() const { return finished_; }  // the job has no further epoch

  std::string query(wire::QueryKind kind);
  // What dataset items are called, of the order that was told with them.
  std::vector<std::string> uris(std::span<const std::int64_t> items,
                                const std::string& order_digest);
  Applied apply(const ApplyWish& wish);
  // What the daemon told, as of the last batch handed out.
  const Attached& attached();
  // Changes with what attached() says of the pipeline.
  std::uint64_t facts_changes() const { return facts_changes_; }

  LoaderStats stats() const;
  const Placement& place() const { return place_; }
  const std::string& address() const { return attacher_.address(); }
  void close();

 private:
  // Calls until it is not the connection's loss that ends it.
  template <typename F>
  auto connected(Waiting& waiting, Outage& outage, F&& call);
  void attach(Waiting& waiting, Outage& outage);
  void drop_link();
  void lose_link(const std::string& why);
  void lose_link_if_over(const Error& failed);
  // Reads what is there. `ready`: the caller gets the result, be it a batch or the epoch's end.
  std::optional<Batch> try_next(Waiting* waiting, bool& ready, bool* asks);
  std::optional<Batch> hand_out(Arrival&& arrival, bool* asks);
  void adopt_facts(const Facts& facts, std::uint32_t number);
  void remember_facts();
  bool knows(const std::string& order_digest) const;
  void check_credits(Waiting& waiting);
  void tell_waited(SteadyTime now);
  void apply_reset(const wire::ResetFrame& reset);
  std::string whereabouts() const;

  const LoaderOptions& options_;
  const std::unique_ptr<LoaderDevice> device_;  // null: batches stay in main memory
  const Attacher attacher_;
  Placement place_;
  bool finished_ = false;

  std::optional<Cursor> start_;       // where to attach; none: as the options say
  std::unique_ptr<Link> link_;        // null: not attached, or lost
  Arrivals arrivals_;                 // over that link
  std::unique_ptr<Link> leaving_;     // what the next attach takes the place of
  std::string lost_why_;              // the link, since it was there last
  std::optional<Attached> attached_;  // as last told; outlives the link
  std::uint32_t facts_number_ = 0;    // which of the link's facts those are
  std::uint64_t facts_changes_ = 0;
  std::vector<std::string> orders_;  // digests that the job has had, as far as was seen
  Cursor cursor_;                    // after the last batch handed out; once attached
  std::uint32_t seek_ = 0;           // serial that the stream's frames carry
  bool seeking_ = false;             // sent, and not yet answered by a Reset
  bool by_ipc_ = false;              // how batches come to the device: as the last one did
  LoaderStats stats_;
  LoopTimes times_;           // of the loop that calls next()
  SteadyTime told_waited_{};  // when the daemon was told last
  CoreWaits core_waits_;      // of the threads that call next()
  // Atomic: the threads that run the caller's functions add to it. A sum that orders nothing.
  std::atomic<std::int64_t> mapped_ns_{0};
};

}  // namespace spdld::client
