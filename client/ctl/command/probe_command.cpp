// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "base/text/printable.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/program/program.h"
#include "ctl/table.h"

namespace spdld::ctl {
namespace {

using nlohmann::ordered_json;

// What the daemon's program prints: it holds FFmpeg, which takes longer to load than most commands
// take. Its errors go where ours go.
std::string output_of(const std::string& program, const std::string& path) {
  Ran ran = run_program({program, "--probe=" + path}, Errors::kOurs);
  if (ran.error != 0) {
    throw Failure(kFailed,
                  fmt::format("cannot run {}, which reads media files: {}; install it, or say "
                              "where it is by $SPDLD_BIN",
                              printable(program), std::generic_category().message(ran.error)));
  }
  if (WIFSIGNALED(ran.status)) {
    throw Failure(kFailed, fmt::format("{} was ended by signal {} while it read the file",
                                       printable(program), WTERMSIG(ran.status)));
  }
  return std::move(ran.text);
}

std::string text_of(const ordered_json& stream, const char* key) {
  const auto found = stream.find(key);
  if (found == stream.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string picture_of(const ordered_json& stream) {
  std::string text = text_of(stream, "width") + "x" + text_of(stream, "height");
  if (const std::string format = text_of(stream, "pixel_format"); !format.empty())
    text += " " + format;
  if (const int turned = stream.value("rotation", 0); turned != 0)
    text += fmt::format(", turned by {}", turned);
  if (stream.value("mirrored", false)) text += ", mirrored";
  return text;
}

std::string amount_of(const ordered_json& stream) {
  if (stream.value("kind", "") == "audio") {
    return fmt::format("{} samples, {}", text_of(stream, "samples"),
                       show_seconds(stream.value("seconds", 0.0)));
  }
  std::string text = text_of(stream, "frames") + " frames";
  if (stream.contains("key_frames")) text += ", " + text_of(stream, "key_frames") + " key";
  if (stream.contains("mean_frames_per_second"))
    text += fmt::format(", {:.3f} fps", stream.value("mean_frames_per_second", 0.0));
  return text;
}

void show(const ordered_json& facts, const Context& context) {
  context.out << fmt::format("{}: {}, {}\n", facts.value("file", ""), facts.value("format", ""),
                             show_bytes(facts.value("bytes", std::uint64_t{0})));
  Table table({">STREAM", "KIND", "CODEC", "DECODER", "FORMAT", "HOLDS", "LANGUAGE", "READ BY"});
  for (const ordered_json& stream : facts["streams"]) {
    const bool video = stream.value("kind", "") == "video";
    table.add({text_of(stream, "index"), text_of(stream, "kind"), text_of(stream, "codec"),
               text_of(stream, "decoder"),
               video ? picture_of(stream)
                     : fmt::format("{} Hz, {} ch", text_of(stream, "sample_rate"),
                                   text_of(stream, "channels")),
               amount_of(stream), cell(text_of(stream, "language")), text_of(stream, "read")});
  }
  table.print(context.out);
  for (const ordered_json& fault : facts["faults"])
    context.out << fmt::format("fault: {}\n", printable(fault.get<std::string>()));
}

}  // namespace

void add_probe_command(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand(
      "probe",
      "shows what a file of video or sound holds, and which decoder serves it, as the daemon sees "
      "it. Reads the file with your own rights and asks no daemon");
  const auto path = std::make_shared<std::string>();
  command->add_option("FILE", *path, "the file to look at")->required();
  const std::shared_ptr<Output> output = add_output(*command);
  command->callback([&context, path, output] {
    if (path->empty())
      throw Failure(kWrongUsage, "probe: FILE is an empty text; name the file to look at");
    const std::string program = daemon_program();
    const ordered_json facts = ordered_json::parse(output_of(program, *path), nullptr, false);
    if (!facts.is_object()) {
      throw Failure(kFailed, fmt::format("{} does not say what the file holds; is it of this "
                                         "version of spdld?",
                                         printable(program)));
    }
    if (facts.contains("error")) throw Failure(kFailed, text_of(facts, "error"));
    if (output->json()) {
      context.out << facts.dump(2) << '\n';
    } else {
      show(facts, context);
    }
  });
}

}  // namespace spdld::ctl
