// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/text/counted.h"
#include "ctl/commands.h"
#include "ctl/listing.h"
#include "ctl/program/runners.h"
#include "ctl/submission.h"

namespace spdld::ctl {
namespace {

void add_delete(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("delete", "removes a pipeline or a job");
  command->require_subcommand(1);
  command->fallthrough();
  CLI::App* pipeline = command->add_subcommand("pipeline", "refused while jobs run it");
  pipeline->alias("pipelines");
  const auto name = std::make_shared<std::string>();
  pipeline->add_option("PIPELINE", *name, "which")->required();
  pipeline->callback([&context, name, output = add_output(*pipeline)] {
    context.connect().delete_pipeline(*name);
    tell({{"pipeline", *name}, {"deleted", true}}, fmt::format("pipeline '{}' deleted", *name),
         *output, context);
  });
  CLI::App* job =
      command->add_subcommand("job", "ends its sessions, too; one that has ended is forgotten");
  job->alias("jobs");
  job->callback([&context, key = add_job_key(*job), output = add_output(*job)] {
    const v1::DeleteJobResponse deleted = context.connect().delete_job(*key);
    tell({{"job", key->job()},
          {"pipeline", deleted.pipeline()},
          {"deleted", true},
          {"had_ended", deleted.had_ended()}},
         fmt::format(
             "job '{}' on pipeline '{}' {}", key->job(), deleted.pipeline(),
             deleted.had_ended() ? "had ended: what was kept of it is forgotten" : "deleted"),
         *output, context);
  });
}

void add_explain(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("explain", "how a pipeline would be run");
  command->callback(
      [&context, submitted = add_tried_submission(*command), output = add_output(*command)] {
        const v1::PipelineText text = submitted->read();
        const v1::ExplainResponse plan = context.connect().explain(
            text, starting_runners(context.progress(), submitted->python, context.directory()));
        if (output->json()) {
          context.out << to_json(plan.facts()).dump(2) << '\n';
          return;
        }
        context.out << plan.plan();
        if (!plan.plan().ends_with('\n')) context.out << '\n';
      });
}

void add_index(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand(
      "index", "reads what a pipeline's source lists ahead of time: the index of tar shards");
  command->callback(
      [&context, submitted = add_submission(*command), output = add_output(*command)] {
        const v1::Pipeline pipeline =
            context.connect().apply(submitted->read(), true, context.progress());
        for (const std::string& warning : pipeline.warnings())
          context.err << fmt::format("spdlctl: warning: {}\n", cell(warning));
        tell({{"pipeline", pipeline.name()}, {"items", pipeline.items()}},
             fmt::format("the source of pipeline '{}' is indexed: {}", cell(pipeline.name()),
                         counted(pipeline.items(), "item")),
             *output, context);
      });
}

}  // namespace

void add_pipeline_commands(CLI::App& app, const Context& context) {
  add_delete(app, context);
  add_explain(app, context);
  add_index(app, context);
}

}  // namespace spdld::ctl
