// SPDX-License-Identifier: Apache-2.0
#include "spdld/loader.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launch_env.h"
#include "stream.h"
#include "text.h"

namespace spdld {
namespace {

using client::join;
using std::chrono::milliseconds;

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
                options.cursor->seed, "; leave seed out, or give that one"));
    }
    options.seed = options.cursor->seed;
  }
  return options;
}

client::ApplyWish wish_of(const std::map<std::string, std::string>& vars,
                          const ApplyOptions& options) {
  const auto fail = [](const std::string& message) {
    throw PipelineError(client::kInvalidArgument, message);
  };
  if (vars.empty()) fail("apply() was given no variables: there is nothing to change");
  for (const auto& [name, value] : vars) {
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos) {
      fail(join("'", name, "' is no variable's name"));
    }
    if (value.find('\0') != std::string::npos) fail(join("variable '", name, "' has a NUL in it"));
  }
  client::ApplyWish wish{.vars = vars,
                         .at = wire::ApplyAt::kNextEpoch,
                         .epoch = 0,
                         .step = 0,
                         .allow_schema_change = options.allow_schema_change};
  switch (options.at) {
    case ApplyAt::kNow: wish.at = wire::ApplyAt::kNow; break;
    case ApplyAt::kNextEpoch: break;
    case ApplyAt::kStep:
      wish.at = wire::ApplyAt::kStep;
      wish.epoch = options.epoch;
      wish.step = options.step;
      break;
  }
  return wish;
}

}  // namespace

// The stream, and what keeps callers from using it where it is not theirs to use.
class Loader::Impl {
 public:
  explicit Impl(LoaderOptions options)
      : options_(checked(std::move(options))),
        stream_(options_, client::find_placement(options_, client::process_env),
                client::find_address(options_, client::process_env)) {}
  ~Impl() {
    if (owner_ == ::getpid()) close();
  }

  // For what only reads.
  const client::Stream& stream() const { return stream_; }
  void mapped(std::chrono::nanoseconds took) { stream_.mapped(took); }
  // For what needs the daemon, or moves.
  client::Stream& usable();

  void set_epoch(std::uint64_t epoch);
  Cursor state();
  const std::vector<std::string>& classes();
  std::string fingerprint();
  void close();
  bool is_closed() const { return closed_; }

 private:
  const LoaderOptions options_;
  const pid_t owner_ = ::getpid();
  bool closed_ = false;
  client::Stream stream_;
  std::optional<std::vector<std::string>> classes_;
  std::uint64_t classes_of_ = 0;  // the stream's facts_changes() then
};

client::Stream& Loader::Impl::usable() {
  if (closed_) throw ConnectionError(client::kFailedPrecondition, "the loader is closed");
  if (owner_ != ::getpid()) {
    throw ConnectionError(client::kFailedPrecondition,
                          join("the loader belongs to process ", owner_, ", and this is its child ",
                               ::getpid(), "; open another one here"));
  }
  return stream_;
}

void Loader::Impl::set_epoch(std::uint64_t epoch) {
  const Cursor now = stream_.state();
  const bool is_there = !stream_.unknown() && now.epoch == epoch && now.position == 0 &&
                        now.step == 0 && !stream_.finished();
  if (is_there) return;
  usable().go_to({.epoch = epoch, .run = now.run, .branch = now.branch, .turn = now.turn});
}

Cursor Loader::Impl::state() {
  if (stream_.unknown()) (void)usable().attached();
  return stream_.state();
}

const std::vector<std::string>& Loader::Impl::classes() {
  if (!classes_ || classes_of_ != stream_.facts_changes()) {
    const std::string text = usable().query(wire::QueryKind::kClasses);
    std::vector<std::string> names;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\0', begin), text.size());
      names.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    classes_ = std::move(names);
    classes_of_ = stream_.facts_changes();
  }
  return *classes_;
}

std::string Loader::Impl::fingerprint() {
  const client::Attached& told = usable().attached();
  return join(told.pipeline.empty() ? options_.pipeline : told.pipeline, " order ",
              told.facts.order_digest, " seed ", told.frame.seed, " items ", told.facts.items,
              " shards ", told.frame.num_shards, " batch ", told.facts.batch_size);
}

void Loader::Impl::close() {
  if (std::exchange(closed_, true)) return;
  if (owner_ != ::getpid()) return;  // the connection is the parent's
  stream_.close();                   // the connection ends with the last lease
}

Loader Loader::open(LoaderOptions options) {
  return Loader(std::make_unique<Impl>(std::move(options)));
}

Loader::Loader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

std::optional<Batch> Loader::next() { return impl_->usable().next(); }
std::optional<Batch> Loader::next_ahead(bool& asks) { return impl_->usable().next(&asks); }
void Loader::handed(std::uint64_t turn) { impl_->usable().handed(turn); }
void Loader::mapped(std::chrono::nanoseconds took) { impl_->mapped(took); }
bool Loader::ended() const { return impl_->stream().finished(); }
void Loader::set_epoch(std::uint64_t epoch) { impl_->set_epoch(epoch); }
std::uint64_t Loader::epoch() const { return impl_->stream().state().epoch; }
void Loader::load_state(const Cursor& cursor) { impl_->usable().go_to(cursor); }
Cursor Loader::state() const { return impl_->state(); }
void Loader::skip_steps(std::uint64_t steps) { impl_->usable().skip(steps); }

Applied Loader::apply(const std::map<std::string, std::string>& vars, const ApplyOptions& options) {
  return impl_->usable().apply(wish_of(vars, options));
}

std::uint64_t Loader::steps_per_epoch() { return impl_->usable().attached().facts.steps_per_epoch; }
std::uint64_t Loader::items() { return impl_->usable().attached().facts.items; }
std::uint64_t Loader::batch_size() { return impl_->usable().attached().facts.batch_size; }
std::uint32_t Loader::pipeline_version() {
  return impl_->usable().attached().facts.pipeline_version;
}
const std::vector<std::string>& Loader::classes() { return impl_->classes(); }
std::vector<std::string> Loader::uris(const Batch& batch) {
  return uris(batch.indices(), batch.order_digest());
}
std::vector<std::string> Loader::uris(std::span<const std::int64_t> indices,
                                      const std::string& order_digest) {
  return impl_->usable().uris(indices, order_digest);
}
std::string Loader::fingerprint() { return impl_->fingerprint(); }
std::string Loader::server_stats() { return impl_->usable().query(wire::QueryKind::kStats); }
LoaderStats Loader::stats() const { return impl_->stream().stats(); }
const std::string& Loader::placed_by() const { return impl_->stream().place().by; }
std::int32_t Loader::shard() const { return impl_->stream().place().shard; }
std::int32_t Loader::num_shards() const { return impl_->stream().place().num_shards; }
const std::string& Loader::job() const { return impl_->stream().place().job; }
const std::string& Loader::address() const { return impl_->stream().address(); }
void Loader::close() { impl_->close(); }
bool Loader::closed() const { return impl_->is_closed(); }

}  // namespace spdld
