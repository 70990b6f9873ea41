// SPDX-License-Identifier: Apache-2.0
#include "attach.h"

#include <unistd.h>

#include <utility>

#include "process_facts.h"
#include "text.h"

#ifndef SPDLD_VERSION
#define SPDLD_VERSION "unknown"
#endif

namespace spdld::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kClientName[] = "libspdld " SPDLD_VERSION;

std::string text_of(Replace replace) {
  switch (replace) {
    case Replace::kNever: break;
    case Replace::kUnread: return std::string(wire::kReplaceUnread);
    case Replace::kAlways: return std::string(wire::kReplaceAlways);
  }
  return "";
}

}  // namespace

void Outage::lost(const LinkLost& lost) {
  const auto now = steady_clock::now();
  if (now - attempted_ >= kHeld) *this = Outage();
  if (attempts_ == 0) since_ = now;
  why_ = lost.why;
  answered_ = lost.answered;
  denied_ = lost.denied;
}

AttachWish Attacher::wish(const Placement& place, const Attached* known,
                          const std::optional<Cursor>& from) const {
  AttachWish wish;
  wire::AttachFrame& frame = wish.frame;
  frame.shard = place.shard;
  frame.num_shards = place.num_shards;
  frame.replicas = options_.replicas;
  frame.credits = options_.prefetch.value_or(0);
  frame.batch_size = options_.batch_size.value_or(-1);
  frame.incarnation = place.incarnation;
  frame.start =
      options_.start == Start::kLedger ? wire::StartMode::kLedger : wire::StartMode::kFresh;
  if (options_.seed) {
    frame.has_seed = 1;
    frame.seed = *options_.seed;
  }
  if (known != nullptr) {
    // The same consumer, back again: it goes on where its caller is.
    frame.reconnect = 1;
    frame.has_seed = 1;
    frame.seed = known->frame.seed;
  }
  if (from) {
    if (frame.has_seed == 0 && !from->order_digest.empty()) {
      frame.has_seed = 1;
      frame.seed = from->seed;
    }
    frame.start = wire::StartMode::kCursor;
    frame.epoch = from->epoch;
    frame.position = from->position;
    frame.step = from->step;
    if (from->run != 0) {
      frame.run = from->run;
      frame.turn = from->turn;
      frame.branch = from->branch;
    }
  }
  wish.start_runners = options_.start_runners;
  frame.starts_runners = options_.start_runners ? 1 : 0;
  const auto add = [&](wire::TextKey key, const std::string& text) {
    if (!text.empty()) wish.texts.emplace_back(key, text);
  };
  add(wire::TextKey::kPipeline, options_.pipeline);
  add(wire::TextKey::kJob, place.job);
  add(wire::TextKey::kReplica, place.replica);
  add(wire::TextKey::kClientName, options_.client_name);
  add(wire::TextKey::kCommand, command_line());
  add(wire::TextKey::kHost, host_name());
  add(wire::TextKey::kPid, std::to_string(::getpid()));
  add(wire::TextKey::kPipelineFile, options_.pipeline_file);
  if (known == nullptr) add(wire::TextKey::kReplace, text_of(options_.replace));
  if (from) add(wire::TextKey::kOrderDigest, from->order_digest);
  for (const auto& [name, value] : options_.vars) add(wire::TextKey::kVar, join(name, "=", value));
  for (const auto& [name, value] : options_.env) add(wire::TextKey::kEnv, join(name, "=", value));
  wish.yaml = options_.pipeline_yaml;
  if (device_ != nullptr) add(wire::TextKey::kDevice, device_->uuid());
  return wish;
}

std::unique_ptr<Link> Attacher::attach(const Placement& place, const Attached* known,
                                       const std::optional<Cursor>& from, Waiting& waiting,
                                       Outage& outage) const {
  const std::string path = address_ + "/data.sock";
  const milliseconds limit = known != nullptr ? options_.timeout : options_.connect_timeout;
  const std::string lost_why = known != nullptr ? outage.why_ : "";
  const AttachWish wish = this->wish(place, known, from);
  for (;;) {
    if (outage.attempts_ > 0) {
      if (steady_clock::now() - outage.since_ >= limit) give_up(outage, lost_why, known, from);
      if (options_.on_unreachable) options_.on_unreachable(outage.why_);
      waiting.disconnected(outage_text(outage, lost_why), outage.since_ + limit);
      const auto until = steady_clock::now() + outage.backoff_.next();
      while (steady_clock::now() < until) {
        waiting.alive();  // attempts have a limit of their own, above
        waiting.wait(-1, 0, std::chrono::ceil<milliseconds>(until - steady_clock::now()));
      }
      waiting.reconnected();  // or silent, if it does not answer; the next round says if it is not
    }
    ++outage.attempts_;
    outage.attempted_ = steady_clock::now();
    try {
      return std::make_unique<Link>(
          path, options_.client_name.empty() ? kClientName : options_.client_name, wish, device_,
          waiting);
    } catch (const LinkLost& lost) {
      outage.lost(lost);
    }
  }
}

std::string Attacher::outage_text(const Outage& outage, const std::string& lost_why) const {
  const std::string last = join("last attempt: ", outage.why_);
  if (outage.answered_) return join("the daemon at ", address_, " takes no one yet, ", last, "; ");
  // Whoever starts daemons itself is not told to.
  const std::string way_out =
      options_.on_unreachable || outage.denied_
          ? std::string("; ")
          : join("; start ", lost_why.empty() ? "one" : "it again", " (spdld --config FILE), or ");
  const std::string gone = lost_why.empty()
                               ? join("no daemon answers at ", address_)
                               : join("the daemon at ", address_, " is gone (", lost_why, ")");
  return join(gone, ", ", last, way_out);
}

void Attacher::give_up(const Outage& outage, const std::string& lost_why, const Attached* known,
                       const std::optional<Cursor>& from) const {
  const milliseconds limit = known != nullptr ? options_.timeout : options_.connect_timeout;
  const std::string tried =
      join(outage.why_, " (", outage.attempts_, " attempts in ", limit.count(), " ms)");
  if (known == nullptr && outage.denied_)
    throw ConnectionError(kPermissionDenied, join("the spdld daemon at ", address_,
                                                  " is closed to this user: ", tried));
  if (known == nullptr) {
    throw ConnectionError(kUnavailable,
                          join("no spdld daemon answers at ", address_, ": ", tried,
                               "; start one (spdld --config FILE, or in Python "
                               "Loader(..., launch=True)), or name its runtime directory (address, "
                               "$SPDLD_ADDRESS)"));
  }
  const std::string where =
      from ? join(" to go on at step ", from->step, " of epoch ", from->epoch) : std::string();
  throw ConnectionError(kUnavailable, join("lost the spdld daemon at ", address_, " (", lost_why,
                                           ") and tried to attach again", where, ": ", tried,
                                           "; raise timeout if it takes longer to come back"));
}

}  // namespace spdld::client
