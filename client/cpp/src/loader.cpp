// SPDX-License-Identifier: Apache-2.0
#include "spdld/loader.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "batch_state.h"
#include "launch_env.h"
#include "link.h"
#include "text.h"
#include "waiting.h"

#ifndef SPDLD_VERSION
#define SPDLD_VERSION "unknown"
#endif

namespace spdld {
namespace {

using client::join;
using client::Link;
using client::LinkLost;
using client::Waiting;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kClientName[] = "libspdld " SPDLD_VERSION;
// How long next() waits for the end of an epoch to be told while the caller holds every credit.
constexpr milliseconds kEpochEndGrace{1'000};

LoaderOptions checked(LoaderOptions options) {
  const auto fail = [](const std::string& message) {
    throw PipelineError(client::kInvalidArgument, message);
  };
  if (options.pipeline.empty()) fail("pipeline is empty; `spdlctl get pipelines` lists them");
  if (options.batch_size && *options.batch_size < 1) {
    fail(join("batch_size is ", *options.batch_size, "; it is at least 1"));
  }
  if (options.prefetch &&
      (*options.prefetch < wire::kMinCredits || *options.prefetch > wire::kMaxCredits)) {
    fail(join("prefetch is ", *options.prefetch, "; it is ", wire::kMinCredits, " to ",
              wire::kMaxCredits));
  }
  if (options.timeout <= milliseconds::zero()) fail("timeout is not positive");
  if (options.cursor && !options.cursor->order_digest.empty()) {
    if (options.seed && *options.seed != options.cursor->seed) {
      fail(join("seed is ", *options.seed, ", but the cursor was made with seed ",
                options.cursor->seed));
    }
    options.seed = options.cursor->seed;
  }
  return options;
}

}  // namespace

class Loader::Impl {
 public:
  explicit Impl(LoaderOptions options)
      : options_(checked(std::move(options))),
        place_(client::find_placement(options_, client::process_env)),
        address_(client::find_address(options_, client::process_env)),
        start_(options_.cursor) {}
  ~Impl() {
    if (owner_ == ::getpid()) close();
  }

  std::optional<Batch> next();
  void go_to(const Cursor& cursor);
  Cursor state() const;
  std::string query(wire::QueryKind kind);
  const client::Attached& attached();
  const std::vector<std::string>& classes();
  std::string fingerprint();
  LoaderStats stats() const;
  void close();

  bool is_closed() const { return closed_; }
  const client::Placement& place() const { return place_; }
  const std::string& address() const { return address_; }
  bool at_start_of(std::uint64_t epoch) const {
    const Cursor now = state();
    return now.epoch == epoch && now.position == 0 && now.step == 0 && !finished_;
  }

 private:
  void check_usable() const;
  // What went wrong since the daemon was last of use.
  struct Outage {
    static constexpr milliseconds kHeld{1'000};
    void lost(const std::string& reason);

    std::uint64_t attempts = 0;
    std::string why;
    client::SteadyTime since = steady_clock::now();
    client::SteadyTime attempted = since;
    client::Backoff backoff;
  };
  void attach(Waiting& waiting, Outage& outage);
  void adopt(std::unique_ptr<Link> link);
  [[noreturn]] void give_up(const Outage& outage, const std::string& lost_why,
                            milliseconds limit) const;
  client::AttachWish wish() const;
  std::string whereabouts() const;
  std::optional<Batch> try_next(Waiting* waiting, bool& ready);
  void check_credits(const Waiting& waiting) const;
  void apply_reset(const wire::ResetFrame& reset);
  bool stale(std::uint32_t seek, std::uint64_t lease);

  const LoaderOptions options_;
  client::Placement place_;
  const std::string address_;
  const pid_t owner_ = ::getpid();
  bool closed_ = false;
  bool finished_ = false;  // the job has no further epoch

  std::optional<Cursor> start_;               // where to attach; none: as the options say
  std::unique_ptr<Link> link_;                // null: not attached, or lost
  std::optional<client::Attached> attached_;  // as last told; outlives the link
  Cursor cursor_;                             // after the last batch handed out; once attached
  std::uint32_t seek_ = 0;                    // serial that the stream's frames carry
  bool seeking_ = false;                      // sent, and not yet answered by a Reset
  std::optional<std::vector<std::string>> classes_;
  LoaderStats stats_;
};

void Loader::Impl::check_usable() const {
  if (closed_) throw ConnectionError(client::kFailedPrecondition, "the loader is closed");
  if (owner_ != ::getpid()) {
    throw ConnectionError(client::kFailedPrecondition,
                          join("the loader belongs to process ", owner_, ", and this is its child ",
                               ::getpid(), "; open another one here"));
  }
}

std::string Loader::Impl::whereabouts() const {
  const Cursor now = state();
  return join("step ", now.step, " of epoch ", now.epoch, " of '", options_.pipeline, "' (shard ",
              place_.shard, " of ", place_.num_shards, ")");
}

client::AttachWish Loader::Impl::wish() const {
  client::AttachWish wish;
  wire::AttachFrame& frame = wish.frame;
  frame.shard = place_.shard;
  frame.num_shards = place_.num_shards;
  frame.replicas = options_.replicas;
  frame.credits = options_.prefetch.value_or(0);
  frame.batch_size = options_.batch_size.value_or(-1);
  frame.incarnation = place_.incarnation;
  frame.start =
      options_.start == Start::kLedger ? wire::StartMode::kLedger : wire::StartMode::kFresh;
  if (options_.seed) {
    frame.has_seed = 1;
    frame.seed = *options_.seed;
  }
  std::optional<Cursor> from = start_;
  if (attached_) {
    // The same consumer, back again: it goes on where its caller is.
    frame.reconnect = 1;
    frame.has_seed = 1;
    frame.seed = attached_->frame.seed;
    if (!from) from = cursor_;
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
  }
  const auto add = [&](wire::TextKey key, const std::string& text) {
    if (!text.empty()) wish.texts.emplace_back(key, text);
  };
  add(wire::TextKey::kPipeline, options_.pipeline);
  add(wire::TextKey::kJob, place_.job);
  add(wire::TextKey::kReplica, place_.replica);
  add(wire::TextKey::kClientName, options_.client_name);
  add(wire::TextKey::kPipelineFile, options_.pipeline_file);
  if (from) add(wire::TextKey::kOrderDigest, from->order_digest);
  for (const auto& [name, value] : options_.vars) add(wire::TextKey::kVar, join(name, "=", value));
  for (const auto& [name, value] : options_.env) add(wire::TextKey::kEnv, join(name, "=", value));
  wish.yaml = options_.pipeline_yaml;
  return wish;
}

// The connection was lost, or an attempt at it failed. One that held for a while was a success, and
// what follows is another outage.
void Loader::Impl::Outage::lost(const std::string& reason) {
  const auto now = steady_clock::now();
  if (now - attempted >= kHeld) *this = {};
  if (attempts == 0) since = now;
  why = reason;
}

// Connects and attaches, again and again until it succeeds, is refused, or takes too long.
void Loader::Impl::attach(Waiting& waiting, Outage& outage) {
  const std::string path = address_ + "/data.sock";
  const milliseconds limit = attached_ ? options_.timeout : options_.connect_timeout;
  const std::string lost_why = attached_ ? outage.why : "";
  for (;;) {
    if (outage.attempts > 0) {
      if (steady_clock::now() - outage.since >= limit) give_up(outage, lost_why, limit);
      if (options_.on_unreachable) options_.on_unreachable(outage.why);
      const auto until = steady_clock::now() + outage.backoff.next();
      while (steady_clock::now() < until) {
        waiting.alive();  // attempts have a limit of their own, above
        waiting.wait(-1, 0, std::chrono::ceil<milliseconds>(until - steady_clock::now()));
      }
    }
    ++outage.attempts;
    outage.attempted = steady_clock::now();
    try {
      adopt(std::make_unique<Link>(
          path, options_.client_name.empty() ? kClientName : options_.client_name, wish(),
          waiting));
      return;
    } catch (const LinkLost& lost) {
      outage.lost(lost.why);
    }
  }
}

void Loader::Impl::give_up(const Outage& outage, const std::string& lost_why,
                           milliseconds limit) const {
  const std::string tried =
      join(outage.why, " (", outage.attempts, " attempts in ", limit.count(), " ms)");
  if (!attached_) {
    throw ConnectionError(client::kUnavailable,
                          join("no spdld daemon answers at ", address_, ": ", tried,
                               "; start one (spdld --config FILE), or name its runtime directory "
                               "(address, $SPDLD_ADDRESS)"));
  }
  throw ConnectionError(client::kUnavailable,
                        join("lost the spdld daemon at ", address_, " (", lost_why,
                             ") and could not go on with it: ", tried));
}

void Loader::Impl::adopt(std::unique_ptr<Link> link) {
  const client::Attached& told = link->attached();
  if (attached_) ++stats_.reconnects;
  const wire::AttachedFrame& frame = told.frame;
  place_.shard = frame.shard;
  place_.num_shards = frame.num_shards;
  cursor_ = {.order_digest = told.order_digest,
             .seed = frame.seed,
             .epoch = frame.epoch,
             .position = frame.position,
             .step = frame.step};
  attached_ = told;
  link_ = std::move(link);
  start_.reset();
  seek_ = 0;
  seeking_ = false;
}

bool Loader::Impl::stale(std::uint32_t seek, std::uint64_t lease) {
  if (seek == seek_) return false;
  if (lease != 0) link_->release(lease);
  return true;
}

void Loader::Impl::apply_reset(const wire::ResetFrame& reset) {
  if (seeking_ && reset.seek != seek_) return;  // ours is still on its way
  seeking_ = false;
  seek_ = reset.seek;
  finished_ = false;
  cursor_.epoch = reset.epoch;
  cursor_.position = reset.position;
  cursor_.step = reset.step;
  place_.shard = reset.shard;
  place_.num_shards = reset.num_shards;
  attached_->frame.steps_per_epoch = reset.steps_per_epoch;
}

// Reads what is there. `ready`: the caller gets the result, be it a batch or the epoch's end.
std::optional<Batch> Loader::Impl::try_next(Waiting* waiting, bool& ready) {
  ready = true;
  while (const wire::FrameHeader* header = link_->poll(waiting)) {
    if (header->type == wire::FrameType::kBatch) {
      const auto& frame = *reinterpret_cast<const wire::BatchFrame*>(header);
      if (stale(frame.seek, frame.lease)) continue;
      const wire::BatchFrame kept = frame;
      auto state = link_->batch(kept);
      cursor_.epoch = kept.epoch;
      cursor_.position = kept.next_position;
      cursor_.step = kept.step + 1;
      ++stats_.batches;
      return Batch(std::move(state));
    }
    if (header->type == wire::FrameType::kEpochEnd) {
      const auto& frame = *reinterpret_cast<const wire::EpochEndFrame*>(header);
      if (stale(frame.seek, 0)) continue;
      cursor_.epoch = frame.epoch + 1;
      cursor_.position = 0;
      cursor_.step = 0;
      finished_ = frame.last != 0;
      return std::nullopt;
    }
    apply_reset(*reinterpret_cast<const wire::ResetFrame*>(header));
  }
  ready = false;
  return std::nullopt;
}

// Nothing is there, and nothing can come while the caller holds all that it may hold: waiting would
// be for ever. The end of an epoch needs no credit, though, and may be on its way.
void Loader::Impl::check_credits(const Waiting& waiting) const {
  const client::Channel& channel = *link_->channel();
  const std::uint32_t credits = attached_->frame.credits;
  if (credits == 0 || channel.held() < credits) return;
  if (cursor_.step >= attached_->frame.steps_per_epoch && waiting.waited() < kEpochEndGrace) return;
  const auto held = channel.held_batches();
  if (held.size() < credits) return;
  std::string list;
  for (const auto& batch : held) {
    list += join(list.empty() ? "" : ", ", "step ", batch.step, " of epoch ", batch.epoch);
  }
  throw LeaseError(client::kFailedPrecondition,
                   join("next() would wait for ever: this process holds all ", credits,
                        " batches that it may hold (", list,
                        "); let go of one, copy what you keep, or raise prefetch"));
}

std::optional<Batch> Loader::Impl::next() {
  check_usable();
  if (finished_) return std::nullopt;
  std::string lost_why;
  if (link_) {
    try {
      bool ready = false;
      auto batch = try_next(nullptr, ready);
      if (ready) return batch;
    } catch (const LinkLost& lost) {
      lost_why = lost.why;
      link_.reset();
    } catch (const Error&) {
      if (link_->channel()->is_lost()) link_.reset();
      throw;
    }
  }
  ++stats_.waits;
  Waiting waiting(options_, whereabouts());
  Outage outage;
  outage.why = lost_why;
  for (;;) {
    try {
      if (!link_) attach(waiting, outage);
      bool ready = false;
      auto batch = try_next(&waiting, ready);
      if (ready) {
        stats_.waited += waiting.waited();
        return batch;
      }
      check_credits(waiting);
      link_->wait(waiting, milliseconds::max());
    } catch (const LinkLost& lost) {
      outage.lost(lost.why);
      link_.reset();
      waiting.alive();
    } catch (const Error&) {
      if (link_ && link_->channel()->is_lost()) link_.reset();
      throw;
    }
  }
}

const client::Attached& Loader::Impl::attached() {
  check_usable();
  if (!attached_) {
    Waiting waiting(options_, join("'", options_.pipeline, "' to be ready"));
    Outage outage;
    attach(waiting, outage);
  }
  return *attached_;
}

void Loader::Impl::go_to(const Cursor& cursor) {
  check_usable();
  if (!cursor.order_digest.empty() && attached_) {
    if (cursor.order_digest != attached_->order_digest) {
      throw PipelineError(client::kFailedPrecondition,
                          join("the cursor is of another order of '", options_.pipeline,
                               "': ", cursor.order_digest, " instead of ", attached_->order_digest,
                               "; its files, shuffle or mix have changed"));
    }
    if (cursor.seed != attached_->frame.seed) {
      throw PipelineError(client::kFailedPrecondition,
                          join("the cursor was made with seed ", cursor.seed, ", and the job has ",
                               attached_->frame.seed));
    }
  }
  if (!cursor.order_digest.empty() && options_.seed && *options_.seed != cursor.seed) {
    throw PipelineError(client::kFailedPrecondition,
                        join("the cursor was made with seed ", cursor.seed,
                             ", and the loader was opened with ", *options_.seed));
  }
  finished_ = false;
  if (!link_) {
    start_ = cursor;
    return;
  }
  cursor_.epoch = cursor.epoch;
  cursor_.position = cursor.position;
  cursor_.step = cursor.step;
  Waiting waiting(options_, "a seek");
  try {
    link_->seek(cursor_, ++seek_, waiting);
    seeking_ = true;
  } catch (const LinkLost&) {
    link_.reset();  // the next call attaches at the cursor
  }
}

Cursor Loader::Impl::state() const {
  if (start_) {
    Cursor cursor = *start_;
    if (attached_ && cursor.order_digest.empty()) {
      cursor.order_digest = attached_->order_digest;
      cursor.seed = attached_->frame.seed;
    }
    return cursor;
  }
  return cursor_;
}

std::string Loader::Impl::query(wire::QueryKind kind) {
  check_usable();
  Waiting waiting(options_, "an answer");
  Outage outage;
  for (;;) {
    try {
      if (!link_) attach(waiting, outage);
      return link_->query(kind, waiting);
    } catch (const LinkLost& lost) {
      outage.lost(lost.why);
      link_.reset();
      waiting.alive();
    }
  }
}

const std::vector<std::string>& Loader::Impl::classes() {
  if (!classes_) {
    const std::string text = query(wire::QueryKind::kClasses);
    std::vector<std::string> names;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\0', begin), text.size());
      names.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    classes_ = std::move(names);
  }
  return *classes_;
}

std::string Loader::Impl::fingerprint() {
  const client::Attached& told = attached();
  return join(told.pipeline.empty() ? options_.pipeline : told.pipeline, " order ",
              told.order_digest, " seed ", told.frame.seed, " items ", told.frame.items, " shards ",
              told.frame.num_shards, " batch ", told.frame.batch_size);
}

LoaderStats Loader::Impl::stats() const {
  LoaderStats stats = stats_;
  stats.held = link_ ? link_->channel()->held() : 0;
  stats.credits = attached_ ? attached_->frame.credits : 0;
  return stats;
}

void Loader::Impl::close() {
  if (std::exchange(closed_, true)) return;
  if (link_) link_->detach();
  link_.reset();  // the connection ends with the last lease
}

Loader Loader::open(LoaderOptions options) {
  return Loader(std::make_unique<Impl>(std::move(options)));
}

Loader::Loader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

std::optional<Batch> Loader::next() { return impl_->next(); }

void Loader::set_epoch(std::uint64_t epoch) {
  if (impl_->at_start_of(epoch)) return;
  impl_->go_to({.order_digest = {}, .seed = 0, .epoch = epoch, .position = 0, .step = 0});
}

std::uint64_t Loader::epoch() const { return impl_->state().epoch; }
void Loader::load_state(const Cursor& cursor) { impl_->go_to(cursor); }
Cursor Loader::state() const { return impl_->state(); }
std::uint64_t Loader::steps_per_epoch() { return impl_->attached().frame.steps_per_epoch; }
std::uint64_t Loader::items() { return impl_->attached().frame.items; }
std::uint64_t Loader::batch_size() { return impl_->attached().frame.batch_size; }
std::uint32_t Loader::pipeline_version() { return impl_->attached().frame.pipeline_version; }
const std::vector<std::string>& Loader::classes() { return impl_->classes(); }
std::string Loader::fingerprint() { return impl_->fingerprint(); }
std::string Loader::server_stats() { return impl_->query(wire::QueryKind::kStats); }
LoaderStats Loader::stats() const { return impl_->stats(); }
std::int32_t Loader::shard() const { return impl_->place().shard; }
std::int32_t Loader::num_shards() const { return impl_->place().num_shards; }
const std::string& Loader::job() const { return impl_->place().job; }
const std::string& Loader::address() const { return impl_->address(); }
void Loader::close() { impl_->close(); }
bool Loader::closed() const { return impl_->is_closed(); }

}  // namespace spdld
