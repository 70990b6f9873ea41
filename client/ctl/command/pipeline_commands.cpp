// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "base/text/utf8.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/init/survey.h"
#include "ctl/listing.h"
#include "ctl/show/packed_rows.h"
#include "ctl/show/preview_grid.h"
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
      [&context, submitted = add_submission(*command), output = add_output(*command)] {
        const v1::PipelineText text = submitted->read();
        const v1::ExplainResponse plan = context.connect().explain(text, context.progress());
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

// One row of a preview as far as the header tells it.
struct PreviewRow {
  std::optional<std::int64_t> label;
  std::optional<std::string> class_name;
  std::int64_t item = 0;
  std::optional<std::string> uri;
};

// What a cell of a table shows of a text.
std::string beginning_of(std::string_view text) {
  constexpr std::size_t kMaxShown = 60;
  const std::string_view shown = cut(text, kMaxShown);
  return shown.size() == text.size() ? std::string(text) : std::string(shown) + "...";
}

std::vector<PreviewRow> rows_of(const Preview& preview) {
  const v1::PreviewHeader& header = preview.header;
  const auto labels = labels_of(preview);
  std::vector<PreviewRow> rows(labels.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const int row = static_cast<int>(i);
    rows[i].label = labels[i];
    if (labels[i] && *labels[i] >= 0 && *labels[i] < header.classes_size())
      rows[i].class_name = header.classes(static_cast<int>(*labels[i]));
    rows[i].item = header.indices(row);
    if (row < header.uris_size()) rows[i].uri = header.uris(row);
  }
  return rows;
}

Table rows_table(const Preview& preview) {
  const std::vector<TextField> texts = texts_of(preview);
  std::vector<std::string> headings{">ROW", ">LABEL", "CLASS", ">ITEM", "URI"};
  for (const TextField& field : texts) headings.push_back(field.name);
  Table table(std::move(headings));
  std::size_t number = 0;
  for (const PreviewRow& row : rows_of(preview)) {
    std::vector<std::string> cells{
        std::to_string(number), row.label ? std::to_string(*row.label) : "-",
        row.class_name.value_or("-"), std::to_string(row.item), row.uri.value_or("-")};
    for (const TextField& field : texts) cells.push_back(beginning_of(field.rows[number]));
    table.add(std::move(cells));
    ++number;
  }
  return table;
}

nlohmann::ordered_json preview_json(const Preview& preview) {
  auto tensors = nlohmann::ordered_json::array();
  for (const v1::Tensor& tensor : preview.header.tensors()) tensors.push_back(to_json(tensor));
  auto rows = nlohmann::ordered_json::array();
  const std::vector<TextField> texts = texts_of(preview);
  for (const PreviewRow& row : rows_of(preview)) {
    nlohmann::ordered_json facts = {
        {"label", nullptr}, {"class", nullptr}, {"item", row.item}, {"uri", nullptr}};
    facts["texts"] = nlohmann::ordered_json::object();
    for (const TextField& field : texts) facts["texts"][field.name] = field.rows[rows.size()];
    if (row.label) facts["label"] = *row.label;
    if (row.class_name) facts["class"] = *row.class_name;
    if (row.uri) facts["uri"] = *row.uri;
    rows.push_back(std::move(facts));
  }
  return {{"tensors", std::move(tensors)}, {"rows", std::move(rows)}};
}

// ", with 'mask' and 'boxes' drawn on them"
std::string drawn_on(const Grid& grid) {
  std::string names;
  for (const std::string& name : grid.drawn)
    names += fmt::format("{}'{}'", names.empty() ? "" : " and ", cell(name));
  return names.empty() ? "" : ", with " + names + " drawn on them";
}

void check_is_png(const std::string& path) {
  if (ending_of(path) == "png") return;
  const std::string other = std::filesystem::path(path).replace_extension(".png").string();
  throw Failure(
      kWrongUsage,
      fmt::format("{} does not end in .png, and a preview is drawn as a PNG alone: say -o "
                  "{}, or -o json for the rows",
                  printable(path), printable(other)));
}

void add_preview(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("preview", "one batch as the model will see it");
  const auto to = std::make_shared<std::string>("table");
  const auto rows = std::make_shared<std::uint32_t>(16);
  command
      ->add_option("-o,--output", *to,
                   "what is printed, or else a .png to draw the batch's images into, with their "
                   "masks and boxes, or its sound; row numbers are those of the list")
      ->type_name("table|json|FILE.png")
      ->capture_default_str();
  command->add_option("--rows", *rows, "how many, up to the pipeline's batch size")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->callback([&context, to, rows, submitted = add_submission(*command)] {
    if (*to != "json" && *to != "table") check_is_png(*to);
    const v1::PipelineText text = submitted->read();
    const Preview preview = context.connect().preview(text, *rows, context.progress());
    if (*to == "json") {
      constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
      context.out << preview_json(preview).dump(2, ' ', false, kReplace) << '\n';
      return;
    }
    if (*to != "table") {
      const Grid grid = make_grid(preview);
      write_png(grid.picture, *to);
      context.out << fmt::format(
          "{}: tensor '{}', {} in {}, {}{}\n", *to, cell(grid.tensor),
          counted(static_cast<std::uint64_t>(preview.header.indices_size()), "row"),
          counted(grid.columns, "column"), grid.scale, drawn_on(grid));
    }
    rows_table(preview).print(context.out);
  });
}

}  // namespace

void add_pipeline_commands(CLI::App& app, const Context& context) {
  add_delete(app, context);
  add_explain(app, context);
  add_index(app, context);
  add_preview(app, context);
}

}  // namespace spdld::ctl
