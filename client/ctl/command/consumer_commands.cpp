// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ctl/commands.h"
#include "ctl/consume.h"
#include "ctl/cursor_text.h"
#include "ctl/failure.h"
#include "ctl/option_words.h"
#include "ctl/submission.h"

namespace spdld::ctl {
namespace {

// What says which batches to attach to; the same for every consumer.
struct Attachment {
  LoaderOptions loader;
  std::vector<std::string> vars;

  LoaderOptions options(const Context& context) const {
    check();
    LoaderOptions asked = loader;
    asked.address = context.directory();
    asked.vars = parse_vars(vars);
    context.limit(asked);
    return asked;
  }

 private:
  // What the loader would say of the same by the names that it has for it.
  void check() const {
    const auto refuse = [](const std::string& why) { throw Failure(kWrongUsage, why); };
    if (loader.rank.has_value() != loader.world_size.has_value())
      refuse("--rank and --world-size go together: give both, or neither, to take the launcher's");
    if (loader.shard.has_value() != loader.num_shards.has_value() &&
        loader.shard.value_or(-1) != -1)
      refuse(
          "--shard and --num-shards go together: give both, or neither, to take the rank and the "
          "world size");
    if (loader.replicas > 1 && !loader.shard)
      refuse(
          fmt::format("--replicas {} needs --shard and --num-shards: which consumers see the "
                      "same batches cannot be guessed",
                      loader.replicas));
    if (loader.replicas > 1 && !loader.replica)
      refuse(fmt::format("--replicas {} needs --replica: which of them this is, 0 to {}",
                         loader.replicas, loader.replicas - 1));
    if (loader.replica && (*loader.replica < 0 || *loader.replica >= loader.replicas))
      refuse(fmt::format("there is no --replica {} of --replicas {}: they count from 0",
                         *loader.replica, loader.replicas));
  }
};

// Runs what reads by a loader. Throws what that throws.
template <typename F>
void with_options_named(F&& read) {
  try {
    read();
  } catch (const PipelineError& refused) {
    throw PipelineError(refused.code(), in_options(refused.what()));
  } catch (const DeviceError& failed) {
    throw DeviceError(failed.code(), in_options(failed.what()));
  }
}

void add_attachment(CLI::App& command, Attachment& attachment) {
  LoaderOptions& loader = attachment.loader;
  command.add_option("PIPELINE", loader.pipeline, "of which pipeline")->required();
  command.add_option("--job", loader.job, "default: one of its own")->type_name("JOB");
  command.add_option("--rank", loader.rank, "default: the launcher's, else 0");
  command.add_option("--world-size", loader.world_size, "default: the launcher's, else 1");
  command.add_option("--shard", loader.shard, "default: the rank; -1: the daemon assigns one");
  command.add_option("--num-shards", loader.num_shards, "default: the world size; -1: the job's");
  command
      .add_option("--replicas", loader.replicas, "consumers of a shard that see the same batches")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--replica", loader.replica, "which of them this is, from 0");
  command.add_option("--batch-size", loader.batch_size, "default: the pipeline's");
  command.add_option("--seed", loader.seed, "default: the pipeline's");
  command.add_option("--prefetch", loader.prefetch, "batches held or waiting, 2 to 64");
  command.add_option("--device", loader.device,
                     "cuda or cuda:N: have large fields there; default: cpu");
  command.add_option("--var", attachment.vars, "NAME=VALUE, of the pipeline's vars; repeatable")
      ->allow_extra_args(false);
}

void add_consume(CLI::App& app, const Context& context) {
  struct Asked {
    Attachment attachment;
    ConsumeOptions options;
    bool no_read = false;
    std::string cursor;
    std::string start = "fresh";
  };
  CLI::App* command = app.add_subcommand("consume", "reads batches as a rank does");
  const auto asked = std::make_shared<Asked>();
  asked->attachment.loader.client_name = "spdlctl consume";
  add_attachment(*command, asked->attachment);
  ConsumeOptions& options = asked->options;
  command->add_option("--batches", options.batches, "stop after so many");
  command->add_option("--epochs", options.epochs, "stop after so many; without either: one");
  command->add_flag("--digest", options.digest,
                    "print 'epoch step shard rows digest' for each batch");
  command->add_flag("--per-row", options.per_row,
                    "with --digest: 'epoch step shard row index digest' for each row");
  command->add_flag("--no-read", asked->no_read, "do not touch the batches' bytes");
  command->add_option("--hold", options.hold, "keep the last so many batches")
      ->capture_default_str();
  command
      ->add_option("--start", asked->start, "fresh, or ledger: where the job's ranks have got to")
      ->check(CLI::IsMember({"fresh", "ledger"}))
      ->capture_default_str();
  command->add_option("--cursor", asked->cursor, "go on where --print-cursor said");
  command->add_flag("--print-cursor", options.print_cursor,
                    "at the end, the position after the last batch, to stderr");
  command->callback([&context, asked, output = add_output(*command)] {
    if (asked->options.per_row && !asked->options.digest)
      throw Failure(kWrongUsage, "--per-row goes with --digest");
    ConsumeOptions ready = asked->options;
    ready.loader = asked->attachment.options(context);
    ready.read = !asked->no_read;
    ready.json = output->json();
    if (asked->start == "ledger") ready.loader.start = Start::kLedger;
    if (!asked->cursor.empty()) ready.loader.cursor = parse_cursor(asked->cursor);
    with_options_named([&] { consume(ready, context.out, context.err); });
  });
}

void add_bench(CLI::App& app, const Context& context) {
  struct Asked {
    Attachment attachment;
    HandoffOptions options;
  };
  CLI::App* bench = app.add_subcommand("bench", "measures against a running daemon");
  bench->require_subcommand(1);
  bench->fallthrough();
  CLI::App* command =
      bench->add_subcommand("handoff", "what next() costs when the batch is released at once");
  const auto asked = std::make_shared<Asked>();
  asked->attachment.loader.client_name = "spdlctl bench";
  add_attachment(*command, asked->attachment);
  command->add_option("--batches", asked->options.batches, "to measure")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  command->add_option("--warm-up", asked->options.warm_up, "batches before that")
      ->capture_default_str();
  command
      ->add_option("--pause-us", asked->options.pause_us,
                   "between batches, so that the daemon can be ahead")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command->callback([&context, asked, output = add_output(*command)] {
    HandoffOptions ready = asked->options;
    ready.loader = asked->attachment.options(context);
    ready.json = output->json();
    with_options_named([&] { bench_handoff(ready, context.out); });
  });
}

}  // namespace

void add_consumer_commands(CLI::App& app, const Context& context) {
  add_consume(app, context);
  add_bench(app, context);
}

}  // namespace spdld::ctl
