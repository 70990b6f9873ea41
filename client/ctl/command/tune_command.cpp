// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/listing.h"
#include "ctl/table.h"

namespace spdld::ctl {
namespace {

struct Asked {
  std::string target;
  std::string pipeline;
  std::vector<std::string> values;
  std::vector<std::string> reset;
};

v1::TuneRequest request_of(const Asked& asked) {
  v1::TuneRequest request;
  if (asked.target != "daemon" || !asked.pipeline.empty()) {
    request.mutable_key()->set_job(asked.target);
    request.mutable_key()->set_pipeline(asked.pipeline);
  }
  for (const std::string& text : asked.values) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Failure(kWrongUsage, "tune: '" + text + "' is no KEY=VALUE");
    const bool is_new =
        request.mutable_set()->insert({text.substr(0, equals), text.substr(equals + 1)}).second;
    if (!is_new) throw Failure(kWrongUsage, "tune: " + text.substr(0, equals) + " is given twice");
  }
  for (const std::string& key : asked.reset) {
    if (request.set().contains(key))
      throw Failure(kWrongUsage, "tune: " + key + " is both set and reset");
    request.add_reset(key);
  }
  return request;
}

// All of them, or those that were changed.
void print_values(const v1::TuneResponse& response, const v1::TuneRequest& request,
                  std::ostream& out) {
  const auto& reset = request.reset();
  const bool all = (request.set().empty() && reset.empty()) ||
                   std::find(reset.begin(), reset.end(), "all") != reset.end();
  Table table({"KEY", "NOW", "CONFIGURED", "RANGE", "MEANS"});
  for (const v1::LiveValue& value : response.values()) {
    if (!all && !request.set().contains(value.key()) &&
        std::find(reset.begin(), reset.end(), value.key()) == reset.end())
      continue;
    table.add({value.key(), cell(value.now()), cell(value.configured()), cell(value.range()),
               cell(value.means())});
  }
  table.print(out);
}

}  // namespace

void add_tune_command(CLI::App& app, const Context& context) {
  CLI::App* command =
      app.add_subcommand("tune", "shows values of a job or the daemon, and changes them at once");
  const auto asked = std::make_shared<Asked>();
  command->add_option("JOB", asked->target, "the job; 'daemon': the daemon, for admins")
      ->required()
      ->type_name("JOB|daemon");
  command->add_option("VALUES", asked->values, "to change; none: all are shown")
      ->type_name("KEY=VALUE ...");
  command->add_option("--reset", asked->reset, "as configured again; 'all': all of them")
      ->type_name("KEY")
      ->allow_extra_args(false);
  command->add_option("--pipeline", asked->pipeline, "of the job")->type_name("PIPELINE");
  command->callback([&context, asked, output = add_output(*command)] {
    const v1::TuneRequest request = request_of(*asked);
    const v1::TuneResponse response = context.connect().tune(request);
    if (output->json()) return print_json(response.values(), context.out);
    print_values(response, request, context.out);
  });
}

}  // namespace spdld::ctl
