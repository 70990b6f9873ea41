// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ctl/commands.h"
#include "ctl/listing.h"
#include "ctl/table.h"

namespace spdld::ctl {
namespace {

std::string show(const v1::Evidence& evidence) {
  if (evidence.unit() == "share")
    return fmt::format("{} {:.0f} %", evidence.name(), evidence.value() * 100);
  const std::string unit = evidence.unit().empty() ? "" : " " + evidence.unit();
  const double value = evidence.value();
  return value >= 1000 ? fmt::format("{} {:.0f}{}", evidence.name(), value, unit)
                       : fmt::format("{} {:.3g}{}", evidence.name(), value, unit);
}

std::string verdict(const v1::Diagnosis& job) {
  if (job.ranks() == 0) return "no rank is attached";
  if (!job.has_waited_share()) return "not known yet: its ranks have only just come";
  const std::string waited = fmt::format("{:.1f} %", job.waited_share() * 100);
  if (job.faster() <= 1)
    return "ranks do not wait for data (at most " + waited +
           " of their time): the trainer sets the pace";
  std::string text = job.ranks() == 1 ? "its rank waits for data "
                                      : "of its ranks, the one that waits most waits for data ";
  text += waited + " of its time";
  // Batches that a slower replica has not read are ready for that one.
  if (job.findings().empty() || job.findings(0).cause() != "slow_replica")
    text +=
        fmt::format("; with data ready, training would be {} as fast",
                    job.faster() > 10 ? "more than 10 x" : fmt::format("{:.1f} x", job.faster()));
  if (job.findings().empty()) text += "; the figures do not tell why";
  return text;
}

void print_diagnosis(const v1::Diagnosis& job, std::ostream& out) {
  out << fmt::format("job '{}' on pipeline '{}': {}\n", cell(job.job()), cell(job.pipeline()),
                     verdict(job));
  int number = 0;
  for (const v1::Finding& finding : job.findings()) {
    out << fmt::format("{}. {}: {}\n", ++number, finding.cause(), cell(finding.says()));
    std::vector<std::string> figures;
    for (const v1::Evidence& evidence : finding.evidence()) figures.push_back(show(evidence));
    if (!figures.empty()) out << fmt::format("   figures  {}\n", fmt::join(figures, ", "));
    if (!finding.command().empty()) out << fmt::format("   try      {}\n", cell(finding.command()));
    if (!finding.brings().empty()) out << fmt::format("   brings   {}\n", finding.brings());
  }
}

}  // namespace

void add_diagnose_command(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("diagnose", "why the ranks of a job wait, and what helps");
  const auto key = std::make_shared<v1::JobKey>();
  command->add_option("JOB", *key->mutable_job(), "the job; default: all");
  command->add_option("--pipeline", *key->mutable_pipeline(), "of the job")->type_name("PIPELINE");
  command->callback([&context, key, output = add_output(*command)] {
    const v1::DiagnoseResponse found = context.connect().diagnose(*key);
    if (output->json()) return print_json(found.jobs(), context.out);
    for (const v1::Diagnosis& job : found.jobs()) print_diagnosis(job, context.out);
    if (found.jobs().empty()) context.out << "no jobs\n";
  });
}

}  // namespace spdld::ctl
