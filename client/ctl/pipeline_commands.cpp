// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/counted.h"
#include "ctl/commands.h"
#include "ctl/image_grid.h"
#include "ctl/listing.h"
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
  pipeline->add_option("NAME", *name, "of the pipeline")->required();
  pipeline->callback([&context, name] {
    context.connect().delete_pipeline(*name);
    context.out << fmt::format("pipeline '{}' deleted\n", *name);
  });
  CLI::App* job =
      command->add_subcommand("job", "ends its sessions, too; one that has ended is forgotten");
  job->alias("jobs");
  const auto key = std::make_shared<v1::JobKey>();
  job->add_option("NAME", *key->mutable_job(), "of the job")->required();
  job->add_option("--pipeline", *key->mutable_pipeline(), "that the job runs");
  job->callback([&context, key] {
    const bool had_ended = context.connect().delete_job(*key).had_ended();
    context.out << fmt::format(
        "job '{}' {}\n", key->job(),
        had_ended ? "had ended: what was kept of it is forgotten" : "deleted");
  });
}

void add_explain(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("explain", "how a pipeline would be run");
  command->callback(
      [&context, submitted = add_submission(*command), output = add_output(*command)] {
        const v1::PipelineText text = submitted->read();
        const std::string plan = context.connect().explain(text, context.progress());
        if (output->json()) {
          context.out << nlohmann::ordered_json{{"plan", plan}}.dump(2) << '\n';
          return;
        }
        context.out << plan;
        if (!plan.ends_with('\n')) context.out << '\n';
      });
}

// The label of each row, if there is a dense int64 tensor "label" of one number a row.
std::vector<std::optional<std::int64_t>> labels_of(const Preview& preview) {
  const auto rows = static_cast<std::size_t>(preview.header.indices_size());
  std::vector<std::optional<std::int64_t>> labels(rows);
  for (int i = 0; i < preview.header.tensors_size(); ++i) {
    const v1::Tensor& tensor = preview.header.tensors(i);
    const std::string& data = preview.data.at(static_cast<std::size_t>(i));
    if (tensor.name() != "label" || tensor.kind() != "dense" || tensor.dtype() != "int64" ||
        data.size() != rows * sizeof(std::int64_t)) {
      continue;
    }
    for (std::size_t row = 0; row < rows; ++row) {
      std::int64_t label = 0;
      std::memcpy(&label, data.data() + row * sizeof(label), sizeof(label));
      labels[row] = label;
    }
  }
  return labels;
}

Table rows_table(const Preview& preview) {
  Table table({">ROW", ">LABEL", "CLASS", ">ITEM", "URI"});
  const auto labels = labels_of(preview);
  const v1::PreviewHeader& header = preview.header;
  for (int row = 0; row < header.indices_size(); ++row) {
    const auto& label = labels[static_cast<std::size_t>(row)];
    const bool named = label && *label >= 0 && *label < header.classes_size();
    table.add({std::to_string(row), label ? std::to_string(*label) : "-",
               named ? header.classes(static_cast<int>(*label)) : "-",
               std::to_string(header.indices(row)),
               row < header.uris_size() ? header.uris(row) : "-"});
  }
  return table;
}

void add_preview(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("preview", "one batch as the model will see it");
  const auto png = std::make_shared<std::string>();
  const auto rows = std::make_shared<std::uint32_t>(16);
  command->add_option("-o,--output", *png,
                      "PNG to draw the batch's images into; row numbers are those of the list");
  command->add_option("--rows", *rows, "how many, up to the pipeline's batch size")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->callback([&context, png, rows, submitted = add_submission(*command)] {
    const v1::PipelineText text = submitted->read();
    const Preview preview = context.connect().preview(text, *rows, context.progress());
    if (!png->empty()) {
      const Grid grid = make_grid(preview);
      write_png(grid.picture, *png);
      context.out << fmt::format(
          "{}: tensor '{}', {} in {}, {}\n", *png, cell(grid.tensor),
          counted(static_cast<std::uint64_t>(preview.header.indices_size()), "row"),
          counted(grid.columns, "column"), grid.scale);
    }
    rows_table(preview).print(context.out);
  });
}

}  // namespace

void add_pipeline_commands(CLI::App& app, const Context& context) {
  add_delete(app, context);
  add_explain(app, context);
  add_preview(app, context);
}

}  // namespace spdld::ctl
