// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>

#include "base/text/counted.h"
#include "ctl/commands.h"
#include "ctl/listing.h"
#include "ctl/table.h"

namespace spdld::ctl {
namespace {

void print_headspace(const v1::Headspace& found, std::ostream& out) {
  out << fmt::format("job '{}' on pipeline '{}', {}, the slowest one:\n", cell(found.job()),
                     cell(found.pipeline()), counted(found.ranks(), "rank"));
  if (found.has_now_s())
    out << fmt::format("a step now              {:.3g} s ({})\n", found.now_s(),
                       counted(found.steps_now(), "step"));
  if (found.has_ready_s())
    out << fmt::format(
        "a step with data ready  {:.3g} s ({} in {} of up to {}, held for up to {})\n",
        found.ready_s(), counted(found.steps_ready(), "step"), counted(found.rounds(), "round"),
        counted(found.prefetch(), "batch", "batches"), show_seconds(found.longest_hold_s()));
  if (found.has_gain()) {
    out << fmt::format("gain                    {:.0f} % of a step", found.gain() * 100);
    if (found.gain() >= 0.01 && found.ready_s() > 0)
      out << fmt::format(": {:.2f} x as fast, {} less an epoch", found.now_s() / found.ready_s(),
                         show_seconds(found.saved_epoch_s()));
    out << '\n';
  }
  if (!found.ended_by().empty()) out << "ended early: " << cell(found.ended_by()) << '\n';
  if (!found.warning().empty()) out << "warning: " << cell(found.warning()) << '\n';
}

}  // namespace

void add_headspace_command(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand(
      "headspace", "holds a job's ranks now and then, and tells what ready data would bring");
  const auto request = std::make_shared<v1::HeadspaceRequest>();
  request->set_steps(100);
  command->add_option("JOB", *request->mutable_key()->mutable_job(), "the job")->required();
  command->add_option("--pipeline", *request->mutable_key()->mutable_pipeline(), "of the job")
      ->type_name("PIPELINE");
  command
      ->add_option_function<std::uint32_t>(
          "--steps", [request](std::uint32_t steps) { request->set_steps(steps); },
          "to time, 8 to 1000; default: 100")
      ->type_name("N");
  command->callback([&context, request, output = add_output(*command)] {
    const v1::Headspace found = context.connect().headspace(*request, context.progress());
    if (output->json()) return tell(to_json(found), "", *output, context);
    print_headspace(found, context.out);
  });
}

}  // namespace spdld::ctl
