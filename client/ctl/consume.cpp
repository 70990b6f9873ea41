// SPDX-License-Identifier: Apache-2.0
#include "ctl/consume.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/text/counted.h"
#include "base/text/utf8.h"
#include "ctl/cursor_text.h"
#include "ctl/digest.h"
#include "ctl/interrupt.h"
#include "ctl/option_words.h"
#include "ctl/table.h"
#include "spdld/error.h"

namespace spdld::ctl {
namespace {

using Clock = std::chrono::steady_clock;

struct Totals {
  std::uint64_t batches = 0;
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;
  std::uint64_t invalid_rows = 0;
  std::uint64_t epochs = 0;
  std::uint64_t word = 0;  // xor of all that was read: makes the reading an effect
};

std::uint64_t read_words(const TensorView& field) {
  std::uint64_t folded = 0;
  std::uint64_t at = 0;
  for (; at + sizeof(std::uint64_t) <= field.bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, field.data + at, sizeof(word));
    folded ^= word;
  }
  for (; at < field.bytes; ++at) folded ^= std::to_integer<std::uint64_t>(field.data[at]);
  return folded;
}

void print_digests(const Batch& batch, std::int32_t shard, const ConsumeOptions& options,
                   std::ostream& out) {
  // The values in their order: on a line, or under their names.
  const auto print = [&](const nlohmann::ordered_json& values) {
    if (options.json) {
      out << values.dump() << '\n';
      return;
    }
    const char* before = "";
    for (const auto& value : values) {
      out << std::exchange(before, " ")
          << (value.is_string() ? value.get_ref<const std::string&>() : value.dump());
    }
    out << '\n';
  };
  if (!options.per_row) {
    print({{"epoch", batch.epoch()},
           {"step", batch.step()},
           {"shard", shard},
           {"rows", batch.rows()},
           {"digest", batch_digest(batch.fields(), batch.rows())}});
    return;
  }
  const auto indices = batch.indices();
  for (std::uint64_t row = 0; row < batch.rows(); ++row) {
    print({{"epoch", batch.epoch()},
           {"step", batch.step()},
           {"shard", shard},
           {"row", row},
           {"index", row < indices.size() ? indices[row] : -1},
           {"digest", row_digest(batch.fields(), batch.rows(), row)}});
  }
}

void count(const Batch& batch, bool read, Totals& totals) {
  ++totals.batches;
  totals.rows += batch.rows();
  for (const std::uint8_t valid : batch.valid()) totals.invalid_rows += valid == 0 ? 1 : 0;
  for (const TensorView& field : batch.fields()) {
    if (field.meta) continue;
    totals.bytes += field.bytes;
    if (read) totals.word ^= read_words(field);
  }
}

nlohmann::ordered_json summary_json(const Totals& totals, const Loader& loader,
                                    std::chrono::duration<double> took, bool interrupted) {
  const double seconds = took.count() > 0 ? took.count() : 1e-9;
  const auto per_s = [&](std::uint64_t count) { return static_cast<double>(count) / seconds; };
  const LoaderStats stats = loader.stats();
  return {{"job", utf8(loader.job())},
          {"shard", loader.shard()},
          {"num_shards", loader.num_shards()},
          {"epochs", totals.epochs},
          {"batches", totals.batches},
          {"rows", totals.rows},
          {"invalid_rows", totals.invalid_rows},
          {"bytes", totals.bytes},
          {"took_s", took.count()},
          {"batches_per_s", per_s(totals.batches)},
          {"rows_per_s", per_s(totals.rows)},
          {"bytes_per_s", per_s(totals.bytes)},
          {"waits", stats.waits},
          {"waited_s", std::chrono::duration<double>(stats.waited).count()},
          {"reconnects", stats.reconnects},
          {"interrupted", interrupted},
          {"job_ended", loader.ended()},
          {"cursor", cursor_text(loader.state())}};
}

void print_summary(const Totals& totals, const Loader& loader, std::chrono::duration<double> took,
                   bool interrupted, std::ostream& out) {
  const double seconds = took.count() > 0 ? took.count() : 1e-9;
  const LoaderStats stats = loader.stats();
  out << fmt::format("{}, {}, {} in {:.2f} s{}\n", counted(totals.batches, "batch", "batches"),
                     counted(totals.rows, "row"), show_bytes(totals.bytes), took.count(),
                     interrupted ? " (interrupted)" : "");
  out << fmt::format(
      "{:.1f} batches/s, {:.1f} rows/s, {}/s\n", static_cast<double>(totals.batches) / seconds,
      static_cast<double>(totals.rows) / seconds,
      show_bytes(static_cast<std::uint64_t>(static_cast<double>(totals.bytes) / seconds)));
  out << fmt::format("shard {} of {}, {}, {} not valid\n", loader.shard(), loader.num_shards(),
                     counted(totals.epochs, "whole epoch"), counted(totals.invalid_rows, "row"));
  out << fmt::format("waited {}, {:.2f} s in all; {}\n", counted(stats.waits, "time"),
                     std::chrono::duration<double>(stats.waited).count(),
                     counted(stats.reconnects, "reconnect"));
}

}  // namespace

void consume(const ConsumeOptions& options, std::ostream& out, std::ostream& err) {
  const Interrupt interrupt;
  LoaderOptions loader_options = options.loader;
  loader_options.on_wait = [&] {
    if (interrupt.requested()) throw Interrupted();
  };
  loader_options.on_notice = [&](const std::string& notice) {
    err << "spdlctl: " << in_options(notice) << std::endl;
  };
  Loader loader = Loader::open(std::move(loader_options));

  const std::uint64_t max_epochs =
      options.epochs ? *options.epochs : (options.batches ? UINT64_MAX : 1);
  const std::uint64_t max_batches = options.batches.value_or(UINT64_MAX);
  Totals totals;
  std::deque<Batch> held;
  const auto show = [&](const Batch& batch) {
    count(batch, options.read && !options.digest, totals);
    if (!options.digest) return;
    print_digests(batch, loader.shard(), options, out);
    out.flush();
  };
  bool interrupted = false;
  const Clock::time_point begun = Clock::now();
  try {
    bool job_over = false;  // an epoch without a batch: the job has no further one
    bool epoch_had_batches = false;
    while (totals.batches < max_batches && totals.epochs < max_epochs && !job_over) {
      if (interrupt.requested()) throw Interrupted();
      std::optional<Batch> batch = loader.next();
      if (!batch) {
        job_over = !epoch_had_batches;
        if (epoch_had_batches) ++totals.epochs;
        epoch_had_batches = false;
        continue;
      }
      epoch_had_batches = true;
      const bool read = options.read || options.digest;
      show(read && batch->device() >= 0 ? batch->copy() : *batch);
      held.push_back(std::move(*batch));
      if (held.size() > options.hold) held.pop_front();
    }
  } catch (const Interrupted&) {
    interrupted = true;
  }
  const std::chrono::duration<double> took = Clock::now() - begun;
  held.clear();
  if (!options.digest && options.json) {
    out << summary_json(totals, loader, took, interrupted).dump(2) << '\n';
  } else if (!options.digest) {
    print_summary(totals, loader, took, interrupted, out);
  }
  const bool asked_for_more = totals.batches < max_batches && totals.epochs < max_epochs;
  if (asked_for_more && loader.ended())
    err << fmt::format("job '{}' has ended: epoch {} was its last", cell(loader.job()),
                       loader.epoch() - 1)
        << std::endl;
  if (options.print_cursor) err << cursor_text(loader.state()) << std::endl;
  loader.close();
}

}  // namespace spdld::ctl
