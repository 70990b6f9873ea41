// SPDX-License-Identifier: Apache-2.0
#include "engine/run.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/memory/no_memory.h"
#include "base/rng.h"
#include "base/text/counted.h"
#include "base/text/utf8.h"
#include "engine/cached_image.h"
#include "engine/plan/decode_memory.h"

namespace spdld::engine {
namespace {

// Substitutes are drawn from the whole dataset: if so many in a row are bad, it is not the items.
constexpr std::uint32_t kMaxFailures = 16;

// Of a row, by filters: one that keeps a tenth of all items has as many behind each other once in
// 10^11 rows.
constexpr std::uint32_t kMaxRejections = 256;

// The slowest row is found anew after so long.
constexpr std::chrono::seconds kSlowestSpan{10};

// What a worker may keep for a run while it works for another one.
constexpr std::uint64_t kKeptBytes = std::uint64_t{1} << 20;

// Errors of the data itself, which another item may take the place of.
bool is_data_error(const Status& status) {
  return status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument ||
         status.code() == Code::kResourceExhausted;
}

// An invalid argument is the item's: the request was right.
Code item_code(const Status& why) {
  return why.code() == Code::kInvalidArgument ? Code::kDataLoss : why.code();
}

bool is_dropped(const Row& row) {
  return row.dropped != nullptr && row.dropped->load(std::memory_order_relaxed);
}

// Rows that may be at calls at once: enough for each process to have a message in hand and one that
// waits, and no more than take this much memory together.
int rows_at_calls(const Plan& plan, unsigned workers) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
  constexpr std::uint64_t kUnknownRow = std::uint64_t{256} << 10;
  constexpr std::uint64_t kRowsOfAProcess = 128;
  constexpr std::uint64_t kFewest = 4;
  if (plan.calls.empty()) return 0;
  std::uint64_t row = 0;
  for (const TensorSpec& array : plan.arrays)
    row += array.kind == FieldKind::kDense ? array.row_bytes() : kUnknownRow;
  std::uint64_t processes = 0;
  for (const PlannedCall& call : plan.calls)
    processes +=
        call.spec.concurrency > 0 ? static_cast<std::uint64_t>(call.spec.concurrency) : workers;
  const std::uint64_t most = processes * kRowsOfAProcess;
  return static_cast<int>(std::clamp(kMostBytes / std::max<std::uint64_t>(row, 1),
                                     std::min(processes * kFewest, most), most));
}

Status check_text(const std::string& field, std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0)
      return {Code::kDataLoss, "its field '" + field + "' is no UTF-8 at byte " +
                                   std::to_string(at) + ": mend it, or write 'batch: {collate: {" +
                                   field + ": bytes}}'"};
    at += length;
  }
  return {};
}

}  // namespace

Run::Run(std::shared_ptr<const Plan> plan, std::shared_ptr<source::Source> source,
         source::Sampler sampler, std::uint64_t seed, RunPool pool, RunLimits limits,
         const Clock& clock, std::shared_ptr<SampleCache> cache, RowCallers callers)
    : plan_(std::move(plan)),
      source_(std::move(source)),
      sampler_(std::move(sampler)),
      seed_(seed),
      row_memory_bytes_(pool.row_memory_bytes),
      cache_(std::move(cache)),
      callers_(std::move(callers)),
      most_called_(rows_at_calls(*plan_, pool.workers)),
      weight_(limits.weight),
      max_workers_(limits.workers),
      job_fetching_(limits.fetching),
      job_processing_(limits.processing),
      fetch_concurrency_(plan_->fetch.concurrency),
      stage_concurrency_(plan_->process.concurrency),
      clock_(clock),
      call_pauses_(plan_->spec.on_error.io, source::RetryPauses::kFirst),
      fetch_(*plan_, *source_, cache_.get(), clock),
      call_stats_(std::make_unique<StageStats[]>(plan_->calls.size())),
      op_times_(*plan_),
      workers_(pool.workers) {
  SPDLD_CHECK(callers_.size() == plan_->calls.size());
  for (Worker& worker : workers_) {
    worker.tasks.resize(plan_->tasks.size());
    worker.values = plan_->made_values;
  }
}

void Run::set_limits(RunLimits limits) {
  weight_.store(limits.weight, std::memory_order_relaxed);
  max_workers_.store(limits.workers, std::memory_order_relaxed);
  job_fetching_.store(limits.fetching, std::memory_order_relaxed);
  job_processing_.store(limits.processing, std::memory_order_relaxed);
}

void Run::tune(int fetch_concurrency, int process_concurrency) {
  fetch_concurrency_.store(fetch_concurrency, std::memory_order_relaxed);
  stage_concurrency_.store(process_concurrency, std::memory_order_relaxed);
}

int Run::fetch_concurrency() const {
  const int of_job = job_fetching_.load(std::memory_order_relaxed);
  return of_job > 0 ? of_job : plan_fetching();
}

int Run::stage_concurrency() const {
  const int of_job = job_processing_.load(std::memory_order_relaxed);
  return of_job > 0 ? of_job : plan_processing();
}

int Run::process_concurrency() const {
  const int stage = stage_concurrency();
  const int workers = max_workers_.load(std::memory_order_relaxed);
  if (stage == 0 || workers == 0) return std::max(stage, workers);
  return std::min(stage, workers);
}

bool Run::is_bound_by_job() const {
  const int stage = stage_concurrency();
  const int workers = max_workers_.load(std::memory_order_relaxed);
  return workers > 0 && (stage == 0 || workers <= stage);
}

void Run::bring_at_hand(std::span<Row* const> rows) {
  if (rows.empty()) return;
  source::Sampler::Epoch order(sampler_, rows.front()->order->epoch);  // of one batch, all of them
  for (Row* const row : rows) {
    if (!choose(*row, order)) return;
    row->bytes.parts.epoch_key = draw_key(*row);
  }
  fetch_.bring_at_hand(rows);
}

RowState Run::process(Row& row, unsigned worker, std::uint64_t granted_bytes, Sinks sinks,
                      std::uint64_t token, StreamFailure& failure) {
  if (row.calls != nullptr && (row.calls->is_under_way() || row.calls->goes_on())) {
    const Return from{worker, granted_bytes, sinks.call, token, failure};
    return row.calls->is_under_way() ? end_call(row, from) : go_on(row, from);
  }
  if (!choose(row)) {
    if (!std::exchange(row.alone, true)) return RowState::kNoMemory;
    failure = {.status = Status(Code::kResourceExhausted,
                                "pipeline '" + plan_->spec.name +
                                    "': there is no memory for the order by length of a window of "
                                    "positions, also when it was tried again by itself; give the "
                                    "machine or the daemon's cgroup more memory, or lower "
                                    "shuffle.global.bucket.window")};
    return RowState::kFailed;
  }
  row.bytes.parts.epoch_key = draw_key(row);
  if (fetch_.bring(row.item, row.bytes, sinks.fetch, token) == source::FetchState::kPending)
    return RowState::kPending;
  Status status = std::exchange(row.bytes.status, Status());
  const bool fetch_failed = !status.ok();
  if (!fetch_failed) {
    auto made = make(row, worker, granted_bytes);
    if (made && *made == Made::kRejected) {
      if (Status none = replace_rejected(row); !none.ok()) {
        failure = {.status = std::move(none)};
        return RowState::kFailed;
      }
      return RowState::kAgain;
    }
    if (made && *made == Made::kNeedsMemory) return RowState::kNeedsMemory;
    if (made && plan_->calls.empty()) return RowState::kDone;
    if (made) return is_dropped(row) ? RowState::kDropped : begin_call(row, sinks.call, token);
    status = std::move(made).error();
    if (is_dropped(row)) return RowState::kDropped;
  }
  if (status.code() == kNoMemory) {
    if (fetch_failed) row.bytes.restart();
    return lacks_memory(row, status, failure);
  }

  // A fetch that failed for good is no fault of the item's content: it is never papered over,
  // unless the item is not what the listing saw.
  return give_up(row, status,
                 fetch_failed ? status.code() == Code::kDataLoss : is_data_error(status), failure);
}

RowState Run::give_up(Row& row, const Status& why, bool is_of_item, StreamFailure& failure) {
  const Status refused = is_of_item ? replace(row, why) : final_error(row, why);
  if (!refused.ok()) {
    failure = ended_by(row, refused);
    return RowState::kFailed;
  }
  // Others may have waited for as long as this one took.
  return RowState::kAgain;
}

RowState Run::lacks_memory(Row& row, const Status& why, StreamFailure& failure) const {
  if (!std::exchange(row.alone, true)) return RowState::kNoMemory;
  failure = ended_by(row, out_of_memory(row, why));
  return RowState::kFailed;
}

RowState Run::begin_call(Row& row, CallSink& sink, std::uint64_t token) {
  RowCalls& calls = *row.calls;
  const std::size_t number = calls.number();
  CallRow& call = calls.prepare(*plan_);
  call.seed = seed_;
  call.epoch = row.order->epoch;
  call.position = row.order->rows.position(row.index);
  call.item = row.item;
  call.dropped = row.dropped;
  call.pause = calls.tries() == 0 ? std::chrono::nanoseconds(0)
                                  : call_pauses_.pause(calls.tries(), source_->uri(row.item));
  deliver_into_slot(row, plan_->calls[number].first_array, call);
  calls.begin(clock_.now());
  call_stats_[number].begin();
  callers_[number]->call(call, sink, token);  // from here on it may be with another worker
  return RowState::kCalled;
}

// Has the fields that are delivered as the function gives them back written to the batch's slot.
void Run::deliver_into_slot(const Row& row, std::size_t first_array, CallRow& call) const {
  for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
    const TensorSource& source = plan_->sources[t];
    const TensorSpec& spec = plan_->tensors[t];
    if (source.kind != TensorSource::Kind::kArray || spec.kind != FieldKind::kDense) continue;
    if (source.index < first_array || source.index - first_array >= call.into.size()) continue;
    call.into[source.index - first_array] = {output(row, t).data(), plan_->layout.row_bytes(t)};
  }
}

void Run::called(Row& row, Status status) {
  RowCalls& calls = *row.calls;
  const Code code = status.code();
  const std::chrono::nanoseconds took = calls.answered(std::move(status), clock_.now());
  call_stats_[calls.number()].end(took, std::chrono::nanoseconds(0),
                                  code == Code::kCancelled ? Code::kOk : code);
}

RowState Run::end_call(Row& row, const Return& from) {
  RowCalls& calls = *row.calls;
  const Rejection& rejection = plan_->calls[calls.number()].rejection;
  bool rejected = false;
  Status status;
  try {
    status = calls.take(rejected);
    if (is_dropped(row)) return RowState::kDropped;
    if (status.ok() && rejected) {
      rejected_.fetch_add(1, std::memory_order_relaxed);
      row.rejected_by = &rejection;
      if (rejection.replaces) {
        status = replace_rejected(row);
        if (status.ok()) return RowState::kAgain;
        from.failure = {.status = std::move(status)};
        return RowState::kFailed;
      }
      status = calls.put_nothing(*plan_);
    }
    if (status.code() == Code::kUnavailable) {
      if (calls.try_again(call_pauses_.retries())) return begin_call(row, from.sink, from.token);
      const auto retries = static_cast<std::uint64_t>(call_pauses_.retries());
      if (retries > 0)
        status = Status(Code::kUnavailable,
                        status.message() + ", also after " + counted(retries, "retry", "retries"));
    }
  } catch (const std::bad_alloc&) {
    row.bytes.restart();
    calls.restart();
    return lacks_memory(row, no_memory("what its function gave back"), from.failure);
  }
  if (!status.ok()) return give_up(row, status, is_data_error(status), from.failure);
  return go_on(row, from);
}

RowState Run::go_on(Row& row, const Return& from) {
  Result<Made> made = Made::kDone;
  Status status;
  try {
    made = make_behind_calls(row, from.worker, from.granted_bytes);
    if (made && *made == Made::kNeedsMemory) return RowState::kNeedsMemory;
    if (made && !row.calls->are_done(*plan_)) return begin_call(row, from.sink, from.token);
    status = made ? put_arrays(row) : std::move(made).error();
  } catch (const std::bad_alloc&) {
    status = no_memory("what its function gave back");
  }
  if (status.ok()) {
    finish(row);
    return RowState::kDone;
  }
  if (is_dropped(row)) return RowState::kDropped;
  if (status.code() == kNoMemory) {
    drop_workers(from.worker);
    return lacks_memory(row, status, from.failure);
  }
  return give_up(row, status, is_data_error(status), from.failure);
}

Result<Run::Made> Run::make_behind_calls(Row& row, unsigned number, std::uint64_t granted_bytes) {
  RowCalls::Tasks& tasks = row.calls->tasks();
  const std::size_t end = plan_->tasks_end(row.calls->number());
  if (tasks.run == end) return Made::kDone;
  const auto begun = clock_.now();
  process_stats_.begin();
  Worker& worker = workers_[number];
  RowSample sample(*plan_, *source_, fetch_, row, row.calls->made_values(*plan_));
  sample.key = sample_key(row);
  Making making = this->making(row, worker, sample, granted_bytes);
  making.next = tasks.run;
  Result<bool> has_run = false;
  try {
    has_run = run_tasks(making, end);
  } catch (const std::bad_alloc&) {
    has_run = tl::unexpected<Status>(no_memory("what it is made with"));
  }
  const auto took = clock_.now() - begun;
  const bool lacks_memory = has_run ? !*has_run : has_run.error().code() == kNoMemory;
  if (lacks_memory || (!has_run && is_dropped(row))) {
    process_stats_.postpone();
  } else if (has_run && end < plan_->tasks.size()) {
    process_stats_.postpone(took);
    tasks.took += took;
  } else {
    process_stats_.end(took, tasks.waited, has_run ? Code::kOk : item_code(has_run.error()),
                       tasks.took);
    note_if_slow({row.item, tasks.took + took}, begun + took);
  }
  if (!has_run) return tl::unexpected<Status>(has_run.error());
  if (!*has_run) return Made::kNeedsMemory;
  tasks.run = end;
  return Made::kDone;
}

Status Run::put_arrays(const Row& row) const {
  for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
    if (plan_->sources[t].kind != TensorSource::Kind::kArray) continue;
    const PackedRow& made = row.calls->made(plan_->sources[t].index);
    const TensorSpec& spec = plan_->tensors[t];
    if (spec.text) SPDLD_TRY(check_text(spec.name, made.view));
    const std::size_t extents = spec.kind == FieldKind::kBytes ? 1 : spec.shape.size();
    RowOutput out = output(row, t);
    SPDLD_ASSIGN(std::byte* const to, out.resize({made.shape.data(), extents}));
    // A call may have put it there.
    if (!made.view.empty() && to != made.view.data())
      std::memcpy(to, made.view.data(), made.view.size());
  }
  return {};
}

std::string Run::waits_for_runners() const {
  for (const auto& caller : callers_) {
    if (std::string waits = caller->waits_for(); !waits.empty()) return waits;
  }
  return {};
}

std::vector<std::string> Run::wanted_runners() const {
  std::vector<std::string> wanted;
  for (const auto& caller : callers_) {
    if (std::string pool = caller->wanted(); !pool.empty()) wanted.push_back(std::move(pool));
  }
  return wanted;
}

// Of what the source draws: each row of an item has a clip of its own.
std::uint64_t Run::draw_key(const Row& row) const {
  const std::uint64_t epoch_key = mix64(seed_, row.order->epoch);
  return row.repetition == 0 ? epoch_key : mix64(epoch_key, row.repetition);
}

bool Run::choose(Row& row) const {
  if (row.bytes.stage != RowBytes::Stage::kNone || row.attempt > 0) return true;
  source::Sampler::Epoch order(sampler_, row.order->epoch);
  return choose(row, order);
}

bool Run::choose(Row& row, source::Sampler::Epoch& order) const {
  try {
    const auto [item, repetition] = order.row(row.order->rows.position(row.index));
    row.item = item;
    row.repetition = repetition;
    row.bytes.stage = RowBytes::Stage::kChosen;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Result<Run::Made> Run::make(Row& row, unsigned worker, std::uint64_t granted_bytes) {
  const auto begun = clock_.now();
  const auto waited = begun - row.bytes.since;
  process_stats_.begin();
  Result<Made> made = Made::kDone;
  row.rejected_by = nullptr;
  try {
    made = make_tensors(row, worker, granted_bytes);
  } catch (const std::bad_alloc&) {
    made = tl::unexpected<Status>(no_memory("what it is made with"));
  }
  const bool lacks_memory = !made && made.error().code() == kNoMemory;
  // They are as good as new, and what they have kept may be what is lacking.
  if (lacks_memory) drop_workers(worker);
  if (lacks_memory || (made ? *made == Made::kNeedsMemory : is_dropped(row))) {
    process_stats_.postpone();
    return made;
  }
  if (plan_->may_reject()) judged_.fetch_add(1, std::memory_order_relaxed);
  if (row.rejected_by != nullptr) rejected_.fetch_add(1, std::memory_order_relaxed);
  if (made && *made == Made::kRejected) {
    process_stats_.postpone(clock_.now() - begun);
    return made;
  }
  if (made && plan_->calls.empty()) finish(row);
  const auto now = clock_.now();
  if (made && !plan_->calls.empty() && row.calls->tasks().run < plan_->tasks.size()) {
    row.calls->tasks().took = now - begun;
    row.calls->tasks().waited = waited;
    process_stats_.postpone(now - begun);
    return made;
  }
  process_stats_.end(now - begun, waited, made ? Code::kOk : item_code(made.error()));
  note_if_slow({row.item, now - begun}, now);
  return made;
}

void Run::note_if_slow(const SlowRow& row, std::chrono::nanoseconds now) {
  if (row.took.count() > slowest_ns_.load(std::memory_order_relaxed) ||
      now.count() > slowest_until_ns_.load(std::memory_order_relaxed))
    note_slowest(row, now);
}

void Run::finish(Row& row) {
  const BatchOrder& order = *row.order;
  plan_->layout.set_index(order.slot, row.index, static_cast<std::int64_t>(row.item));
  plan_->layout.set_valid(
      order.slot, row.index,
      row.failures == 0 && row.rejected_by == nullptr && row.index < order.rows.valid);
  if (row.packing == nullptr) return;
  if (plan_->tasks.empty()) {
    row.packing->made(row.index, row.bytes.parts.bytes);
  } else {
    row.packing->made(row.index);
  }
}

void Run::note_slowest(const SlowRow& row, std::chrono::nanoseconds now) {
  MutexLock lock(slowest_mutex_);
  if (now.count() > slowest_until_ns_.load(std::memory_order_relaxed)) {
    slowest_before_ = slowest_;
    slowest_until_ns_.store((now + kSlowestSpan).count(), std::memory_order_relaxed);
  } else if (row.took <= slowest_.took) {
    return;
  }
  slowest_ = row;
  slowest_ns_.store(row.took.count(), std::memory_order_relaxed);
}

Run::SlowRow Run::slowest() const {
  MutexLock lock(slowest_mutex_);
  return slowest_before_.took > slowest_.took ? slowest_before_ : slowest_;
}

bool Run::is_absent(const RowSample& sample, std::size_t task) const {
  if (plan_->task_parts[task] && sample.is_absent(*plan_->task_parts[task])) return true;
  const FieldTask& of = *plan_->tasks[task];
  if (of.array()) return sample.row().calls->is_absent(*of.array());
  if (!lies_in_canvas(of)) return false;
  const ImageTask* const canvas = plan_->canvases[plan_->task_calls[task]];
  return canvas != nullptr && is_absent(sample, *canvas);
}

bool Run::is_absent(const RowSample& sample, const ImageTask& image) const {
  return image.given ? sample.row().calls->is_absent(*image.given)
                     : sample.is_absent(image.request);
}

const Rejection* Run::rejecting(const RowSample& sample) const {
  const Rejection* rejecting = nullptr;
  for (const RowFilter& filter : plan_->filters) {
    if ((rejecting != nullptr && !filter.rejection.replaces) || filter.passes(sample)) continue;
    rejecting = &filter.rejection;
    if (rejecting->replaces) break;
  }
  return rejecting;
}

Result<Run::Made> Run::make_tensors(Row& row, unsigned number, std::uint64_t granted_bytes) {
  Worker& worker = workers_[number];
  if (!plan_->calls.empty()) {
    if (row.calls == nullptr) row.calls = std::make_unique<RowCalls>();
    row.calls->restart();
  }
  // Another row may have had values that this one lacks.
  worker.values = plan_->made_values;
  RowSample sample(*plan_, *source_, fetch_, row, worker.values);
  sample.key = sample_key(row);
  for (const Plan::Presence& presence : plan_->presences)
    sample.set_value(presence.value, !sample.is_absent(presence.request));
  if (plan_->repetition_value)
    sample.set_value(*plan_->repetition_value, static_cast<std::int64_t>(row.repetition));
  Making making = this->making(row, worker, sample, granted_bytes);
  if (!plan_->filters.empty()) {
    SPDLD_ASSIGN(const bool has_values, run_tasks(making, plan_->tasks_before_filters));
    if (!has_values) return Made::kNeedsMemory;
    row.rejected_by = rejecting(sample);
    if (row.rejected_by != nullptr && row.rejected_by->replaces) {
      ++worker.rows;
      return Made::kRejected;
    }
  }
  const std::size_t end = plan_->tasks_end(0);
  SPDLD_ASSIGN(const bool has_run, run_tasks(making, end));
  if (!has_run) return Made::kNeedsMemory;
  for (std::size_t t = 0; t < plan_->tensors.size(); ++t) {
    if (plan_->sources[t].kind == TensorSource::Kind::kPart) SPDLD_TRY(put_part(row, sample, t));
    if (plan_->sources[t].kind == TensorSource::Kind::kValue) SPDLD_TRY(put_value(row, sample, t));
  }
  if (row.calls != nullptr) {
    row.calls->keep(*plan_, sample);
    row.calls->tasks().run = end;
  }
  ++worker.rows;
  return Made::kDone;
}

std::uint64_t Run::sample_key(const Row& row) const {
  return mix64(mix64(seed_, row.order->epoch), row.order->rows.position(row.index));
}

Run::Making Run::making(Row& row, Worker& worker, RowSample& sample,
                        std::uint64_t granted_bytes) const {
  return {.row = row,
          .worker = worker,
          .sample = sample,
          .room = std::max(DecodeMemory::kAllowanceBytes, granted_bytes),
          .is_timed = worker.rows % OpTimes::kEach == 1};  // not the first, which warms up
}

Result<bool> Run::run_tasks(Making& making, std::size_t end) {
  auto& [row, worker, sample, room, is_timed, next, lent] = making;
  for (; next < end; ++next) {
    const std::size_t i = next;
    const std::optional<std::size_t>& array = plan_->task_arrays[i];
    if (array && row.calls->is_absent(*array)) continue;  // of a call that is not made
    const FieldTask& task = *plan_->tasks[i];
    auto& runs = worker.tasks[i];
    if (runs == nullptr) runs = make_worker(task);
    const std::size_t first = plan_->task_tensors[i];
    worker.outputs.clear();
    for (std::size_t t = 0; t < task.tensors().size(); ++t)
      worker.outputs.push_back(array ? row.calls->array(*plan_, *array + t)
                                     : output(row, first + t));
    if (is_absent(sample, i)) {
      for (RowOutput& out : worker.outputs) SPDLD_TRY(out.put_nothing());
      continue;
    }
    const std::uint64_t task_room = room - std::min(room, lent);
    SPDLD_ASSIGN(row.needs_bytes, is_timed ? run_timed(i, *runs, sample, worker.outputs, task_room)
                                           : runs->run(sample, worker.outputs, task_room));
    if (row.needs_bytes > 0) {
      row.needs_bytes += lent;
      if (row.needs_bytes > row_memory_bytes_)
        return tl::unexpected<Status>(over_row_memory(row.needs_bytes, i));
      return false;
    }
    const std::uint64_t kept = runs->kept_bytes();
    if (plan_->tasks.size() == 1 || kept <= DecodeMemory::kAllowanceBytes / plan_->tasks.size())
      continue;
    // What it keeps must not lie beside what the next ones take, unless these go by it.
    if (runs->lends_values()) {
      lent += kept;
    } else {
      runs.reset();
    }
  }
  return true;
}

Result<std::uint64_t> Run::run_timed(std::size_t task, FieldWorker& worker, RowSample& sample,
                                     std::span<RowOutput> out, std::uint64_t room_bytes) {
  DecodeTimer decoding(clock_);
  const auto begun = clock_.now();
  if (!plan_->tasks[task]->array()) sample.decoding = &decoding;
  auto needs_bytes = worker.run(sample, out, room_bytes);
  sample.decoding = nullptr;
  if (needs_bytes && *needs_bytes == 0) op_times_.add(task, clock_.now() - begun, decoding.spent());
  return needs_bytes;
}

Status Run::over_row_memory(std::uint64_t needs_bytes, std::size_t task) const {
  return {Code::kResourceExhausted,
          "'" + plan_->task_ops[task] + "' would take " + std::to_string(needs_bytes) +
              " bytes of memory for it, and limits.row_memory is " +
              std::to_string(row_memory_bytes_) +
              ": lower the sizes or lengths that these stages ask for, leave such items out, or "
              "have that raised in the daemon's configuration"};
}

std::unique_ptr<FieldWorker> Run::make_worker(const FieldTask& task) {
  std::unique_ptr<FieldWorker> made =
      &task == plan_->image && fetch_.image_cache() != nullptr
          ? std::make_unique<CachedImageWorker>(*plan_->image, fetch_, row_memory_bytes_)
          : task.make_worker();
  made->count_in(jpeg_counter_);
  return made;
}

RowOutput Run::output(const Row& row, std::size_t tensor) const {
  const TensorSpec& spec = plan_->tensors[tensor];
  if (spec.kind == FieldKind::kDense)
    return {spec, plan_->layout.row(row.order->slot, tensor, row.index)};
  return {spec, row.packing->row(tensor, row.index)};
}

Status Run::put_part(Row& row, const RowSample& sample, std::size_t tensor) const {
  const std::span<const std::byte> bytes = sample.part(plan_->sources[tensor].index);
  const TensorSpec& spec = plan_->tensors[tensor];
  if (spec.text) SPDLD_TRY(check_text(spec.name, bytes));
  const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(bytes.size())};
  RowOutput out = output(row, tensor);
  // Where nothing is decoded, the row keeps what was fetched as a whole.
  if (plan_->tasks.empty() && fetch_.cached(row.bytes) == nullptr) {
    SPDLD_TRY(out.refer(bytes, shape));
  } else {
    auto room = out.resize(shape);
    if (!room) return std::move(room).error();
    if (!bytes.empty()) std::memcpy(*room, bytes.data(), bytes.size());
  }
  return {};
}

Status Run::put_value(Row& row, const RowSample& sample, std::size_t tensor) const {
  const TensorSource& source = plan_->sources[tensor];
  const Value value = sample.value(source.index);
  const TensorSpec& spec = plan_->tensors[tensor];
  RowOutput out = output(row, tensor);
  if ((source.request && sample.is_absent(*source.request)) ||
      (source.presence && !std::get<bool>(sample.value(*source.presence))))
    return out.put_nothing();
  const auto put = [&](const void* data, std::size_t bytes, std::size_t count) -> Status {
    const std::span<const std::byte> view(static_cast<const std::byte*>(data), bytes);
    if (spec.kind != FieldKind::kDense) {
      const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(count)};
      if (plan_->sources[tensor].index < plan_->first_made_value) {
        SPDLD_TRY(out.refer(view, shape));
      } else {
        SPDLD_ASSIGN(std::byte* const to, out.resize(shape));
        if (bytes > 0) std::memcpy(to, data, bytes);
      }
      return {};
    }
    if (bytes != plan_->layout.row_bytes(tensor))
      return {Code::kDataLoss, "its field '" + spec.name + "' has " + counted(count, "value") +
                                   ", and a row of the stack " +
                                   std::to_string(spec.shape.front()) +
                                   ": write 'batch: {collate: {" + spec.name + ": ragged}}'"};
    if (bytes > 0) std::memcpy(out.data(), data, bytes);
    return {};
  };
  switch (type_of(value)) {
    case ValueType::kInt64: return put(std::get_if<std::int64_t>(&value), 8, 1);
    case ValueType::kFloat64: return put(std::get_if<double>(&value), 8, 1);
    case ValueType::kBool: return put(std::get_if<bool>(&value), 1, 1);
    case ValueType::kText: {
      const auto text = std::get<std::string_view>(value);
      return put(text.data(), text.size(), text.size());
    }
    case ValueType::kInt64List: {
      const auto list = std::get<std::span<const std::int64_t>>(value);
      return put(list.data(), list.size_bytes(), list.size());
    }
    case ValueType::kFloat64List: {
      const auto list = std::get<std::span<const double>>(value);
      return put(list.data(), list.size_bytes(), list.size());
    }
  }
  return {};
}

void Run::drop_workers(unsigned worker) {
  for (auto& task : workers_[worker].tasks) task.reset();
}

void Run::shrink(unsigned worker) {
  for (auto& task : workers_[worker].tasks) {
    if (task != nullptr && task->kept_bytes() > kKeptBytes) task.reset();
  }
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
  return Status(item_code(why), "pipeline '" + plan_->spec.name + "', item " +
                                    std::to_string(row.item) + " (" + source_->uri(row.item) +
                                    "): " + why.message());
}

Status Run::out_of_memory(const Row& row, const Status& why) const {
  const bool is_video = std::any_of(plan_->tasks.begin(), plan_->tasks.end(),
                                    [](const auto& task) { return task->max_pixels() > 0; });
  return final_error(
      row, Status(Code::kResourceExhausted,
                  why.message() +
                      ", also when it was tried again by itself; give the machine or the daemon's "
                      "cgroup more memory, or lower " +
                      (plan_->image != nullptr
                           ? "decode_image.max_pixels, so that on_error decides about "
                             "such images"
                       : is_video ? "decode_video.max_pixels, so that on_error decides about such "
                                    "clips"
                                  : "fetch.concurrency")));
}

Status Run::replace(Row& row, const Status& why) const {
  if (plan_->spec.on_error.decode == spec::ErrorPolicy::OnDecode::kFail)
    return final_error(
        row, Status(why.code(),
                    why.message() + "; remove or mend it, or set 'on_error: {decode: replace}'"));
  if (row.failures == kMaxFailures)
    return final_error(
        row, Status(why.code(), why.message() + "; the " + std::to_string(kMaxFailures) +
                                    " items tried in its place failed, too: leave "
                                    "such items out (source.select, or exclude of files), or see "
                                    "'spdlctl get failures'"));
  SampleFailure failure = failure_of(row, why);
  failure.replaced_by = sampler_.substitute(failure.epoch, failure.position, row.attempt + 1);
  SPDLD_TRY(row.port->may_replace(failure));
  ++row.failures;
  substitute(row, *failure.replaced_by);
  return {};
}

Status Run::replace_rejected(Row& row) const {
  const std::uint64_t position = row.order->rows.position(row.index);
  if (row.attempt - row.failures == kMaxRejections) {
    const Judged all = judged();
    return {Code::kFailedPrecondition,
            "pipeline '" + plan_->spec.name + "': " + row.rejected_by->place + ": " +
                row.rejected_by->stage + ": for position " + std::to_string(position) +
                " of epoch " + std::to_string(row.order->epoch) + " " +
                std::to_string(kMaxRejections + 1) + " items were tried and rejected, and " +
                std::to_string(all.rejected) + " of all " + counted(all.items, "item") +
                " so far: mend what it asks, leave such items out by 'source.select.where' if the "
                "listing knows what it asks, or let them stay by 'rejected: invalid'"};
  }
  substitute(row, sampler_.substitute(row.order->epoch, position, row.attempt + 1));
  return {};
}

void Run::substitute(Row& row, std::uint64_t item) const {
  ++row.attempt;
  row.alone = false;
  row.item = item;
  row.bytes.restart();
  if (row.calls != nullptr) row.calls->restart();
}

Status Run::pack(const BatchOrder& order, const Packing& packing) const {
  return packing.pack(order.slot, order.rows.rows)
      .with_context("pipeline '" + plan_->spec.name + "', epoch " + std::to_string(order.epoch) +
                    ", step " + std::to_string(order.step));
}

}  // namespace spdld::engine
