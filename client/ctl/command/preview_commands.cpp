// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
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
#include "ctl/numbers.h"
#include "ctl/program/runners.h"
#include "ctl/show/packed_rows.h"
#include "ctl/show/preview_grid.h"
#include "ctl/show/row_values.h"
#include "ctl/submission.h"
#include "ctl/swap_options.h"

namespace spdld::ctl {
namespace {

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

// With the label of a field "label" of one integer a row.
std::vector<PreviewRow> rows_of(const Preview& preview, const std::vector<ValueField>& values) {
  const v1::PreviewHeader& header = preview.header;
  const auto labels = std::find_if(values.begin(), values.end(), [](const ValueField& field) {
    return field.name == "label" && field.rows.front().is_number_integer();
  });
  std::vector<PreviewRow> rows(static_cast<std::size_t>(header.indices_size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const int row = static_cast<int>(i);
    if (labels != values.end()) {
      const auto label = labels->rows[i].get<std::int64_t>();
      rows[i].label = label;
      if (label >= 0 && label < header.classes_size())
        rows[i].class_name = header.classes(static_cast<int>(label));
    }
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
  for (const PreviewRow& row : rows_of(preview, values_of(preview))) {
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
  for (const PreviewRow& row : rows_of(preview, values_of(preview))) {
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
  throw Failure(kWrongUsage,
                fmt::format("{} does not end in .png, and rows are drawn as a PNG alone: say -o "
                            "{}, or -o json for the rows",
                            printable(path), printable(other)));
}

// -o table|json|FILE.png: the format, or a path.
std::shared_ptr<std::string> add_drawn_output(CLI::App& command) {
  const auto to = std::make_shared<std::string>("table");
  command
      .add_option("-o,--output", *to,
                  "what is printed, or else a .png to draw the batch's images into, with their "
                  "masks and boxes, or its sound; row numbers are those of the list")
      ->type_name("table|json|FILE.png")
      ->capture_default_str();
  return to;
}

bool is_file(const std::string& output) { return output != "json" && output != "table"; }

void draw(const Preview& preview, const std::string& path, const Context& context) {
  const Grid grid = make_grid(preview);
  write_png(grid.picture, path);
  context.out << fmt::format(
      "{}: tensor '{}', {} in {}, {}{}\n", path, cell(grid.tensor),
      counted(static_cast<std::uint64_t>(preview.header.indices_size()), "row"),
      counted(grid.columns, "column"), grid.scale, drawn_on(grid));
}

void dump_json(const nlohmann::ordered_json& json, const Context& context) {
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  context.out << json.dump(2, ' ', false, kReplace) << '\n';
}

// A field that is not the same in two batches of the same rows.
struct Difference {
  std::string field;
  std::string made_by;
  std::vector<std::size_t> rows;
};

// Rows of which another item came, or one that failed, are not compared further.
std::vector<Difference> differences(const Preview& first, const Preview& second) {
  const auto rows = static_cast<std::size_t>(first.header.indices_size());
  const std::vector<std::vector<std::string>> before = field_digests_of(first);
  const std::vector<std::vector<std::string>> after = field_digests_of(second);
  if (after.size() != before.size() || second.header.indices_size() != first.header.indices_size())
    throw Failure(kFailed, "the data or the file was changed between the two times");
  std::vector<Difference> found;
  Difference items{.field = "(item)", .made_by = "what rejects rows, or has them fail", .rows = {}};
  std::vector<bool> same_item(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const int i = static_cast<int>(row);
    same_item[row] = first.header.indices(i) == second.header.indices(i) &&
                     first.header.valid(i) == second.header.valid(i);
    if (!same_item[row]) items.rows.push_back(row);
  }
  if (!items.rows.empty()) found.push_back(std::move(items));
  for (std::size_t field = 0; field < before.size(); ++field) {
    const int i = static_cast<int>(field);
    Difference differs{.field = first.header.tensors(i).name(), .made_by = {}, .rows = {}};
    if (i < first.header.made_by_size()) differs.made_by = first.header.made_by(i);
    for (std::size_t row = 0; row < rows; ++row)
      if (same_item[row] && before[field][row] != after[field][row]) differs.rows.push_back(row);
    if (!differs.rows.empty()) found.push_back(std::move(differs));
  }
  return found;
}

// Throws Failure if there are any.
void tell(const std::vector<Difference>& found, const Preview& preview, bool as_json,
          const Context& context) {
  const auto rows = static_cast<std::uint64_t>(preview.header.indices_size());
  if (as_json) {
    auto fields = nlohmann::ordered_json::array();
    for (const Difference& of : found)
      fields.push_back({{"field", of.field}, {"made_by", of.made_by}, {"rows", of.rows}});
    dump_json({{"rows", rows}, {"differ", std::move(fields)}}, context);
  } else if (found.empty()) {
    context.out << fmt::format("{} came out the same twice\n", counted(rows, "row"));
  } else {
    Table table({"FIELD", "MADE BY", ">ROWS", ">FIRST", "URI"});
    for (const Difference& of : found) {
      const int row = static_cast<int>(of.rows.front());
      table.add({cell(of.field), cell(of.made_by), fmt::format("{} of {}", of.rows.size(), rows),
                 std::to_string(row),
                 row < preview.header.uris_size() ? cell(preview.header.uris(row)) : "-"});
    }
    table.print(context.out);
  }
  if (!found.empty())
    throw Failure(kFailed,
                  "rows differ from one time to the other, so that a restart, or another number of "
                  "ranks, changes them: a function is to draw from 'rng' alone, and to keep "
                  "nothing from one row for the next");
}

void add_preview(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("preview", "one batch as the model will see it");
  const auto to = add_drawn_output(*command);
  const auto rows = std::make_shared<std::uint32_t>(16);
  command->add_option("--rows", *rows, "how many, up to the pipeline's batch size")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  const auto twice = std::make_shared<bool>(false);
  command->add_flag("--twice", *twice,
                    "make it two times, and say which fields differ: of functions of your own");
  command->callback([&context, to, rows, twice, submitted = add_tried_submission(*command)] {
    if (is_file(*to)) check_is_png(*to);
    if (is_file(*to) && *twice) throw Failure(kWrongUsage, "--twice draws nothing: leave out -o");
    const v1::PipelineText text = submitted->read();
    const auto make = [&] {
      return context.connect().preview(
          text, *rows,
          starting_runners(context.progress(), submitted->python, context.directory()));
    };
    const Preview preview = make();
    if (*twice) return tell(differences(preview, make()), preview, *to == "json", context);
    if (*to == "json") return dump_json(preview_json(preview), context);
    if (is_file(*to)) draw(preview, *to, context);
    rows_table(preview).print(context.out);
  });
}

// "epoch 0, step 12 of job 'run': version 2, shard 1 of 3; sent at turn 30 of the run"
std::string step_text(const v1::ShownStep& step) {
  const std::string place = fmt::format(
      "{} of job '{}' on pipeline '{}': version {}, shard {} of {}", show_place(step.at()),
      cell(step.job()), cell(step.pipeline()), step.version(), step.shard(), step.num_shards());
  if (!step.has_turn())
    return place + "; the run does not come to this step: shown as 'job seek' would have it";
  return fmt::format("{}; {} turn {} of the run", place, step.sent() ? "sent at" : "to come at",
                     step.turn());
}

std::string value_text(const nlohmann::ordered_json& value) {
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& each : value) text += (text.empty() ? "" : " ") + value_text(each);
  return text;
}

Table step_table(const Preview& preview) {
  const std::vector<ValueField> values = values_of(preview);
  const std::vector<TextField> texts = texts_of(preview);
  std::vector<std::string> headings{">ROW", ">ITEM", "VALID", "URI", "CLASS"};
  for (const ValueField& field : values) headings.push_back(">" + field.name);
  for (const TextField& field : texts) headings.push_back(field.name);
  Table table(std::move(headings));
  std::size_t number = 0;
  for (const PreviewRow& row : rows_of(preview, values)) {
    std::vector<std::string> cells{std::to_string(number), std::to_string(row.item),
                                   preview.header.valid(static_cast<int>(number)) ? "yes" : "no",
                                   row.uri.value_or("-"), row.class_name.value_or("-")};
    for (const ValueField& field : values) cells.push_back(value_text(field.rows[number]));
    for (const TextField& field : texts) cells.push_back(beginning_of(field.rows[number]));
    table.add(std::move(cells));
    ++number;
  }
  return table;
}

nlohmann::ordered_json step_json(const ShownBatch& shown) {
  const Preview& preview = shown.rows;
  const std::vector<ValueField> values = values_of(preview);
  const std::vector<TextField> texts = texts_of(preview);
  const std::vector<std::string> digests = digests_of(preview);
  nlohmann::ordered_json json = to_json(shown.step);
  json["tensors"] = nlohmann::ordered_json::array();
  for (const v1::Tensor& tensor : preview.header.tensors())
    json["tensors"].push_back(to_json(tensor));
  auto rows = nlohmann::ordered_json::array();
  for (const PreviewRow& row : rows_of(preview, values)) {
    const std::size_t number = rows.size();
    nlohmann::ordered_json facts = {{"item", row.item},
                                    {"valid", preview.header.valid(static_cast<int>(number))},
                                    {"uri", nullptr},
                                    {"class", nullptr},
                                    {"values", nlohmann::ordered_json::object()},
                                    {"digest", digests[number]}};
    if (row.uri) facts["uri"] = *row.uri;
    if (row.class_name) facts["class"] = *row.class_name;
    for (const ValueField& field : values) facts["values"][field.name] = field.rows[number];
    for (const TextField& field : texts) facts["values"][field.name] = field.rows[number];
    rows.push_back(std::move(facts));
  }
  json["rows"] = std::move(rows);
  return json;
}

void add_show(CLI::App& app, const Context& context) {
  CLI::App* command =
      app.add_subcommand("show", "the rows of any step of a job, as its ranks were given them");
  struct Asked {
    std::string step;
    std::uint32_t shard = 0;
  };
  const auto asked = std::make_shared<Asked>();
  const auto to = add_drawn_output(*command);
  command->add_option("--step", asked->step, "which, in which epoch: 2/150")
      ->required()
      ->type_name("EPOCH/STEP");
  command->add_option("--shard", asked->shard, "whose rows")
      ->check(whole_number())
      ->capture_default_str();
  command->callback([&context, asked, to, key = add_job_key(*command)] {
    if (is_file(*to)) check_is_png(*to);
    v1::ShowRequest request;
    *request.mutable_key() = *key;
    request.set_shard(asked->shard);
    const auto place = parse_place(asked->step);
    if (!place)
      throw Failure(kWrongUsage,
                    fmt::format("--step '{}' is not EPOCH/STEP: 2/0 is where epoch 2 begins",
                                cell(asked->step)));
    request.set_epoch(place->epoch());
    request.set_step(place->step());
    const ShownBatch shown = context.connect().show(request, context.progress());
    if (shown.rows.header.valid_size() != shown.rows.header.indices_size())
      throw Failure(kFailed,
                    "the daemon sent a step that contradicts itself: it is of another "
                    "version than this spdlctl, or broken");
    if (*to == "json") return dump_json(step_json(shown), context);
    if (is_file(*to)) draw(shown.rows, *to, context);
    context.out << step_text(shown.step) << '\n';
    step_table(shown.rows).print(context.out);
  });
}

}  // namespace

void add_preview_commands(CLI::App& app, const Context& context) {
  add_preview(app, context);
  add_show(app, context);
}

}  // namespace spdld::ctl
