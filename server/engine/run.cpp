// SPDX-License-Identifier: Apache-2.0
#include "engine/run.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace spdld::engine {
namespace {

// Substitutes are drawn from the whole dataset: if so many in a row are bad, it is not the items.
constexpr std::uint32_t kMaxAttempts = 16;

// Errors of the data itself, which another item may take the place of.
bool is_data_error(const Status& status) {
  return status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument ||
         status.code() == Code::kResourceExhausted;
}

}  // namespace

Run::Run(std::shared_ptr<const Plan> plan, std::shared_ptr<source::Source> source,
         source::Sampler sampler, std::uint64_t seed, unsigned workers, double weight,
         const Clock& clock)
    : plan_(std::move(plan)),
      source_(std::move(source)),
      sampler_(sampler),
      seed_(seed),
      weight_(weight),
      clock_(clock),
      image_workers_(workers) {}

RowState Run::process(Row& row, unsigned worker, source::FetchSink& sink, std::uint64_t token,
                      Status& failure) {
  const std::uint64_t position = row.order->rows.position(row.index);
  if (!row.fetched && row.attempt == 0) row.item = sampler_.item(row.order->epoch, position);
  while (true) {
    Status status;
    if (!row.fetched) {
      auto state = fetch(row, sink, token);
      if (state && *state == source::FetchState::kPending) return RowState::kPending;
      if (!state) status = std::move(state).error();
    } else {
      status = std::exchange(row.fetch_status, Status());
    }
    const bool fetch_failed = !status.ok();
    if (!fetch_failed) status = make(row, worker);
    if (status.ok()) return RowState::kDone;

    // A fetch that failed for good is no fault of the item's content: it is never papered over,
    // unless the item is not what the listing saw.
    if (fetch_failed ? status.code() != Code::kDataLoss : !is_data_error(status)) {
      failure = final_error(row, status);
      return RowState::kFailed;
    }
    if (Status refused = replace(row, status); !refused.ok()) {
      failure = std::move(refused);
      return RowState::kFailed;
    }
    row.fetched = false;
  }
}

Result<source::FetchState> Run::fetch(Row& row, source::FetchSink& sink, std::uint64_t token) {
  const auto begun = clock_.now();
  row.since = begun;
  fetch_stats_.begin();
  // Once the source has the row, its thread may give it to another worker: no touching it after.
  auto state = source_->fetch(row.item, row.bytes, sink, token);
  if (!state || *state == source::FetchState::kReady) {
    const auto now = clock_.now();
    fetch_stats_.end(now - begun, std::chrono::nanoseconds(0), !state);
    row.since = now;
  }
  return state;
}

void Run::fetched(Row& row, Status status) {
  const auto now = clock_.now();
  fetch_stats_.end(now - row.since, std::chrono::nanoseconds(0), !status.ok());
  row.since = now;
  row.fetch_status = std::move(status);
  row.fetched = true;
}

Status Run::make(Row& row, unsigned worker) {
  const auto begun = clock_.now();
  const auto waited = begun - row.since;
  process_stats_.begin();
  const BatchOrder& order = *row.order;
  Status status;
  if (plan_->image) {
    auto& image_worker = image_workers_[worker];
    if (image_worker == nullptr) image_worker = std::make_unique<ImageWorker>(*plan_->image);
    const std::uint64_t key = mix64(mix64(seed_, order.epoch), order.rows.position(row.index));
    status = image_worker->run(row.bytes.bytes(), key, plan_->layout.row(order.slot, 0, row.index));
  } else {
    std::swap(*row.packed, row.bytes);
  }
  if (status.ok()) {
    for (std::size_t field = 1; field < plan_->tensors.size(); ++field) {
      const std::int64_t value = source_->scalar(row.item, field);
      std::memcpy(plan_->layout.row(order.slot, field, row.index), &value, sizeof value);
    }
    plan_->layout.set_index(order.slot, row.index, static_cast<std::int64_t>(row.item));
    plan_->layout.set_valid(order.slot, row.index,
                            row.attempt == 0 && row.index < order.rows.valid);
  }
  process_stats_.end(clock_.now() - begun, waited, !status.ok());
  return status;
}

SampleFailure Run::failure_of(const Row& row, const Status& why) const {
  return {.epoch = row.order->epoch,
          .position = row.order->rows.position(row.index),
          .item = row.item,
          .uri = source_->uri(row.item),
          .status = why,
          .replaced_by = std::nullopt};
}

Status Run::final_error(const Row& row, const Status& why) const {
  // It is the item that is invalid; whoever asked for it did so rightly.
  const Code code = why.code() == Code::kInvalidArgument ? Code::kDataLoss : why.code();
  return Status(code, "pipeline '" + plan_->spec.name + "', item " + std::to_string(row.item) +
                          " (" + source_->uri(row.item) + "): " + why.message());
}

Status Run::replace(Row& row, const Status& why) const {
  if (plan_->spec.on_error.decode == spec::ErrorPolicy::OnDecode::kFail)
    return final_error(
        row, Status(why.code(),
                    why.message() + "; remove or mend it, or set 'on_error: {decode: replace}'"));
  if (row.attempt == kMaxAttempts)
    return final_error(row, Status(why.code(), why.message() + "; and so were the " +
                                                   std::to_string(kMaxAttempts) +
                                                   " items tried in its place: look at 'spdlctl "
                                                   "get failures'"));
  SampleFailure failure = failure_of(row, why);
  failure.replaced_by = sampler_.substitute(failure.epoch, failure.position, row.attempt + 1);
  SPDLD_TRY(row.port->may_replace(failure));
  ++row.attempt;
  row.item = *failure.replaced_by;
  return {};
}

Status Run::pack(const BatchOrder& order, const std::vector<ByteBuffer>& rows) const {
  const wire::FieldLayout& field = plan_->layout.fields().front();
  SPDLD_CHECK(field.kind == FieldKind::kBytes && rows.size() >= order.rows.rows);
  std::uint64_t offset = 0;
  for (std::uint64_t i = 0; i <= order.rows.rows; ++i) {
    const auto value = static_cast<std::int64_t>(offset);
    std::memcpy(order.slot + field.offsets_offset + i * sizeof value, &value, sizeof value);
    if (i == order.rows.rows) break;
    const ByteBuffer& bytes = rows[i];
    if (bytes.size() > field.capacity_bytes - offset)
      return Status(Code::kResourceExhausted,
                    "pipeline '" + plan_->spec.name + "', epoch " + std::to_string(order.epoch) +
                        ", step " + std::to_string(order.step) + ": the rows take more than " +
                        std::to_string(field.capacity_bytes) +
                        " bytes; raise batch.max_bytes or lower batch.size");
    if (bytes.size() > 0)
      std::memcpy(order.slot + field.offset + offset, bytes.data(), bytes.size());
    offset += bytes.size();
  }
  return {};
}

}  // namespace spdld::engine
