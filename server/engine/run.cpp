// SPDX-License-Identifier: Apache-2.0
#include "engine/run.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/no_memory.h"
#include "base/rng.h"
#include "engine/decode_memory.h"

namespace spdld::engine {
namespace {

// Substitutes are drawn from the whole dataset: if so many in a row are bad, it is not the items.
constexpr std::uint32_t kMaxAttempts = 16;

// What a worker may keep for a run while it works for another one.
constexpr std::uint64_t kKeptBytes = std::uint64_t{1} << 20;

// Errors of the data itself, which another item may take the place of.
bool is_data_error(const Status& status) {
  return status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument ||
         status.code() == Code::kResourceExhausted;
}

}  // namespace

Run::Run(std::shared_ptr<const Plan> plan, std::shared_ptr<source::Source> source,
         source::Sampler sampler, std::uint64_t seed, unsigned workers, RunLimits limits,
         const Clock& clock, std::shared_ptr<SampleCache> cache)
    : plan_(std::move(plan)),
      source_(std::move(source)),
      sampler_(sampler),
      seed_(seed),
      cache_(std::move(cache)),
      weight_(limits.weight),
      max_workers_(limits.workers),
      fetch_concurrency_(plan_->fetch.concurrency),
      stage_concurrency_(plan_->process.concurrency),
      clock_(clock),
      image_workers_(workers) {}

void Run::set_limits(RunLimits limits) {
  weight_.store(limits.weight, std::memory_order_relaxed);
  max_workers_.store(limits.workers, std::memory_order_relaxed);
}

void Run::tune(int fetch_concurrency, int process_concurrency) {
  fetch_concurrency_.store(fetch_concurrency, std::memory_order_relaxed);
  stage_concurrency_.store(process_concurrency, std::memory_order_relaxed);
}

int Run::process_concurrency() const {
  const int stage = stage_concurrency_.load(std::memory_order_relaxed);
  const int workers = max_workers_.load(std::memory_order_relaxed);
  if (stage == 0 || workers == 0) return std::max(stage, workers);
  return std::min(stage, workers);
}

RowState Run::process(Row& row, unsigned worker, std::uint64_t granted_bytes,
                      source::FetchSink& sink, std::uint64_t token, StreamFailure& failure) {
  const std::uint64_t position = row.order->rows.position(row.index);
  if (!row.fetched && row.attempt == 0) row.item = sampler_.item(row.order->epoch, position);
  bool look_up = true;
  while (true) {
    if (!row.fetched && fetch(row, look_up, sink, token) == source::FetchState::kPending)
      return RowState::kPending;
    Status status = std::exchange(row.fetch_status, Status());
    if (status.ok() && row.revision.unchanged && !row.reading_cache &&
        cache_->view(*row.cached) == nullptr) {
      if (read_cache(row, sink, token) == source::FetchState::kPending) return RowState::kPending;
      status = std::exchange(row.fetch_status, Status());
    }
    if (row.reading_cache &&
        (!status.ok() || !SampleCache::holds(*row.cached, row.bytes.bytes()))) {
      // What was kept is lost; the item is not.
      cache_->forget_lost(row.item, *row.cached, status);
      row.fetched = false;
      look_up = false;
      continue;
    }
    const bool fetch_failed = !status.ok();
    if (!fetch_failed) {
      auto made = make(row, worker, granted_bytes);
      if (made) return *made ? RowState::kDone : RowState::kNeedsMemory;
      status = std::move(made).error();
    }
    if (status.code() == kNoMemory) {
      row.fetched = !fetch_failed;
      if (!std::exchange(row.alone, true)) return RowState::kNoMemory;
      failure = ended_by(row, out_of_memory(row, status));
      return RowState::kFailed;
    }

    // A fetch that failed for good is no fault of the item's content: it is never papered over,
    // unless the item is not what the listing saw.
    if (fetch_failed ? status.code() != Code::kDataLoss : !is_data_error(status)) {
      failure = ended_by(row, final_error(row, status));
      return RowState::kFailed;
    }
    if (Status refused = replace(row, status); !refused.ok()) {
      failure = ended_by(row, refused);
      return RowState::kFailed;
    }
    row.fetched = false;
    look_up = true;
  }
}

source::FetchState Run::fetch(Row& row, bool look_up, source::FetchSink& sink,
                              std::uint64_t token) {
  row.reading_cache = false;
  row.revision = {};
  row.cached.reset();
  if (cache_ != nullptr && look_up) {
    row.cached = cache_->find(row.item);
    if (row.cached) row.revision.known = row.cached->stamp;
  }
  row.since = clock_.now();
  row.fetch_took = {};
  fetch_stats_.begin();
  // Once the source has the row, its thread may give it to another worker: no touching it after.
  Result<source::FetchState> state = source::FetchState::kReady;
  try {
    state = cache_ == nullptr
                ? source_->fetch(row.item, row.bytes, sink, token)
                : source_->fetch_revision(row.item, row.bytes, row.revision, sink, token);
  } catch (const std::bad_alloc&) {  // a source that has the row throws no more
    state = tl::unexpected<Status>(no_memory("its bytes"));
  }
  if (state && *state == source::FetchState::kPending) return *state;
  fetched(row, state ? Status() : std::move(state).error());
  return source::FetchState::kReady;
}

source::FetchState Run::read_cache(Row& row, source::FetchSink& sink, std::uint64_t token) {
  row.reading_cache = true;
  row.since = clock_.now();
  fetch_stats_.begin();
  Result<source::FetchState> state = source::FetchState::kReady;
  try {
    state = cache_->read(*row.cached, row.bytes, sink, token);
  } catch (const std::bad_alloc&) {
    state = tl::unexpected<Status>(no_memory("its bytes from the cache"));
  }
  if (state && *state == source::FetchState::kPending) return *state;
  fetched(row, state ? Status() : std::move(state).error());
  return source::FetchState::kReady;
}

void Run::fetched(Row& row, Status status) {
  const auto now = clock_.now();
  fetch_stats_.end(now - row.since, std::chrono::nanoseconds(0), !status.ok());
  row.fetch_took += now - row.since;
  row.since = now;
  row.fetch_status = std::move(status);
  row.fetched = true;
}

Result<bool> Run::make(Row& row, unsigned worker, std::uint64_t granted_bytes) {
  const auto begun = clock_.now();
  const auto waited = begun - row.since;
  process_stats_.begin();
  const BatchOrder& order = *row.order;
  if (row.cached && !row.revision.unchanged) cache_->forget_changed(row.item, *row.cached);
  Result<bool> made = true;
  try {
    made = plan_->image ? make_image(row, worker, granted_bytes) : make_bytes(row);
  } catch (const std::bad_alloc&) {
    made = tl::unexpected<Status>(no_memory("what it is made with"));
  }
  if (made ? !*made : made.error().code() == kNoMemory) {
    process_stats_.postpone();
    // It is as good as new, and what it has kept may be what is lacking.
    if (!made && plan_->image) image_workers_[worker].reset();
    return made;
  }
  if (made) {
    for (std::size_t field = 1; field < plan_->tensors.size(); ++field) {
      const std::int64_t value = source_->scalar(row.item, field);
      std::memcpy(plan_->layout.row(order.slot, field, row.index), &value, sizeof value);
    }
    plan_->layout.set_index(order.slot, row.index, static_cast<std::int64_t>(row.item));
    plan_->layout.set_valid(order.slot, row.index,
                            row.attempt == 0 && row.index < order.rows.valid);
  }
  process_stats_.end(clock_.now() - begun, waited, !made);
  return made;
}

Result<bool> Run::make_bytes(Row& row) {
  ByteBuffer& packed = row.packing->rows[row.index];
  const bool in_place = row.revision.unchanged && !row.reading_cache;
  if (in_place) {
    const std::span<const std::byte> bytes = bytes_of(row);
    std::copy(bytes.begin(), bytes.end(), packed.resize(bytes.size()));
  }
  if (keeps(spec::CacheSpec::Form::kEncoded)) note_encoded(row);
  if (!in_place) std::swap(packed, row.bytes);
  // It waits for the batch's other rows, which may wait for room; the slot bounds it from here on.
  packed.uncount();
  const std::uint64_t before = row.packing->bytes.fetch_add(packed.size());
  if (before + packed.size() > plan_->layout.fields().front().capacity_bytes) packed.shrink(0);
  return true;
}

void Run::note_encoded(const Row& row) {
  if (row.revision.unchanged) {
    cache_->count_hit(row.fetch_took);
    cache_hits_.fetch_add(1, std::memory_order_relaxed);
  } else {
    cache_->count_miss(row.fetch_took);
    if (row.revision.stamp) cache_->keep(row.item, *row.revision.stamp, {}, row.bytes.bytes());
  }
}

std::span<const std::byte> Run::bytes_of(const Row& row) const {
  if (!row.revision.unchanged || row.reading_cache) return row.bytes.bytes();
  return {cache_->view(*row.cached), row.cached->bytes};
}

bool Run::keeps(spec::CacheSpec::Form form) const {
  return cache_ != nullptr && cache_->form() == form;
}

Result<bool> Run::make_image(Row& row, unsigned worker, std::uint64_t granted_bytes) {
  auto& image_worker = image_workers_[worker];
  if (image_worker == nullptr) image_worker = std::make_unique<ImageWorker>(*plan_->image);
  const BatchOrder& order = *row.order;
  const std::uint64_t key = mix64(mix64(seed_, order.epoch), order.rows.position(row.index));
  std::byte* const out = plan_->layout.row(order.slot, 0, row.index);
  const std::span<const std::byte> bytes = bytes_of(row);
  const std::uint64_t room = std::max(DecodeMemory::kAllowanceBytes, granted_bytes);
  // Whether the row is made, of what it takes beyond the room that there is.
  const auto outcome = [&row](const Result<std::uint64_t>& wants) -> Result<bool> {
    if (!wants) return tl::unexpected<Status>(wants.error());
    row.needs_bytes = *wants;
    return *wants == 0;
  };
  const bool decoded_cache = keeps(spec::CacheSpec::Form::kDecoded);
  if (!decoded_cache) {
    auto made = outcome(image_worker->run(bytes, key, out, room));
    const bool again = made ? !*made : made.error().code() == kNoMemory;
    if (!again && keeps(spec::CacheSpec::Form::kEncoded)) note_encoded(row);
    return made;
  }

  const auto begun = clock_.now();
  if (row.revision.unchanged) {
    const Size size = row.cached->size;
    const int channels = plan_->image->decode->channels();
    const ImageView pixels{.data = reinterpret_cast<const std::uint8_t*>(bytes.data()),
                           .width = size.width,
                           .height = size.height,
                           .channels = channels,
                           .stride_bytes = std::ptrdiff_t{size.width} * channels};
    auto made = outcome(image_worker->run(pixels, key, out, room));
    if (made && !*made) return made;
    cache_->count_hit(clock_.now() - begun);
    cache_hits_.fetch_add(1, std::memory_order_relaxed);
    return made;
  }
  const std::uint64_t free_bytes = row.revision.stamp ? cache_->room_for(row.item) : 0;
  if (free_bytes > 0) {
    row.needs_bytes = 0;
    auto whole = image_worker->decode(bytes, free_bytes, room, row.needs_bytes);
    if (whole && row.needs_bytes > 0) return false;
    if (whole && whole->data != nullptr) {
      auto made = outcome(image_worker->run(*whole, key, out, room));
      if (made && !*made) return made;
      cache_->count_miss(clock_.now() - begun);
      cache_->keep(row.item, *row.revision.stamp, {whole->width, whole->height},
                   {reinterpret_cast<const std::byte*>(whole->data),
                    static_cast<std::size_t>(whole->stride_bytes) *
                        static_cast<std::size_t>(whole->height)});
      return made;
    }
    // Corrupt, if only where this crop does not look: made without the cache, it is the same.
    if (!whole && whole.error().code() != kNoMemory) cache_->refuse(row.item);
  }
  auto made = outcome(image_worker->run(bytes, key, out, room));
  if (made && !*made) return made;
  cache_->count_miss(clock_.now() - begun);
  return made;
}

void Run::shrink(unsigned worker) {
  auto& image_worker = image_workers_[worker];
  if (image_worker != nullptr && image_worker->kept_bytes() > kKeptBytes) image_worker.reset();
}

SampleFailure Run::failure_of(const Row& row, const Status& why) const {
  return {.epoch = row.order->epoch,
          .step = row.order->step,
          .position = row.order->rows.position(row.index),
          .item = row.item,
          .uri = source_->uri(row.item),
          .status = why,
          .replaced_by = std::nullopt};
}

StreamFailure Run::ended_by(const Row& row, const Status& why) const {
  return engine::ended_by(failure_of(row, why), why);
}

Status Run::final_error(const Row& row, const Status& why) const {
  // It is the item that is invalid; whoever asked for it did so rightly.
  const Code code = why.code() == Code::kInvalidArgument ? Code::kDataLoss : why.code();
  return Status(code, "pipeline '" + plan_->spec.name + "', item " + std::to_string(row.item) +
                          " (" + source_->uri(row.item) + "): " + why.message());
}

Status Run::out_of_memory(const Row& row, const Status& why) const {
  return final_error(
      row, Status(Code::kResourceExhausted,
                  why.message() +
                      ", also when it was tried again by itself; give the machine or the daemon's "
                      "cgroup more memory, or lower " +
                      (plan_->image ? "decode_image.max_pixels, so that on_error decides about "
                                      "such images"
                                    : "fetch.concurrency")));
}

Status Run::replace(Row& row, const Status& why) const {
  if (plan_->spec.on_error.decode == spec::ErrorPolicy::OnDecode::kFail)
    return final_error(
        row, Status(why.code(),
                    why.message() + "; remove or mend it, or set 'on_error: {decode: replace}'"));
  if (row.attempt == kMaxAttempts)
    return final_error(row,
                       Status(why.code(), why.message() + "; the " + std::to_string(kMaxAttempts) +
                                              " items tried in its place failed, too: leave "
                                              "such files out (source.files.pattern), or see "
                                              "'spdlctl get failures'"));
  SampleFailure failure = failure_of(row, why);
  failure.replaced_by = sampler_.substitute(failure.epoch, failure.position, row.attempt + 1);
  SPDLD_TRY(row.port->may_replace(failure));
  ++row.attempt;
  row.alone = false;
  row.item = *failure.replaced_by;
  return {};
}

Status Run::pack(const BatchOrder& order, const Packing& packing) const {
  const wire::FieldLayout& field = plan_->layout.fields().front();
  SPDLD_CHECK(field.kind == FieldKind::kBytes && packing.rows.size() >= order.rows.rows);
  const std::uint64_t all = packing.bytes.load();
  if (all > field.capacity_bytes)
    return Status(Code::kResourceExhausted,
                  "pipeline '" + plan_->spec.name + "', epoch " + std::to_string(order.epoch) +
                      ", step " + std::to_string(order.step) + ": the rows take " +
                      std::to_string(all) + " bytes, and batch.max_bytes is " +
                      std::to_string(field.capacity_bytes) +
                      ": raise it, with room for larger rows, or lower "
                      "batch.size");
  std::uint64_t offset = 0;
  for (std::uint64_t i = 0; i <= order.rows.rows; ++i) {
    const auto value = static_cast<std::int64_t>(offset);
    std::memcpy(order.slot + field.offsets_offset + i * sizeof value, &value, sizeof value);
    if (i == order.rows.rows) break;
    const ByteBuffer& bytes = packing.rows[i];
    if (bytes.size() > 0)
      std::memcpy(order.slot + field.offset + offset, bytes.data(), bytes.size());
    offset += bytes.size();
  }
  return {};
}

}  // namespace spdld::engine
