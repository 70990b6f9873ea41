// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "base/text/printable.h"
#include "ctl/address.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/init/draft.h"
#include "ctl/init/survey.h"
#include "posix/unique_fd.h"

namespace spdld::ctl {
namespace {

constexpr std::chrono::milliseconds kInitPatience{1000};  // with a daemon that accepts nobody

[[noreturn]] void fail_of_file_there(const std::string& path) {
  throw Failure(kWrongUsage,
                fmt::format("{} is there already: remove it, or name another", printable(path)));
}

// A file that is there stays as it is.
void write_new(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file && errno == EEXIST) fail_of_file_there(path);
  while (file && !text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (!text.empty())
    throw Failure(kFailed, fmt::format("cannot write {}: {}", printable(path),
                                       std::generic_category().message(errno)));
}

// What is written is of use with a daemon; `init` itself asks none. The lines are the README's.
void tell_how_to_start(const Context& context) {
  try {
    for (const std::string& directory : context.directories())
      connect_control(directory, kInitPatience);
  } catch (const Failure& failure) {
    if (failure.exit_code() != kUnreachable) return;
    context.out << fmt::format(
        "That needs a daemon: {}\n"
        "By hand, one of your own is started so:\n"
        "    export SPDLD_HOME=${{TMPDIR:-/var/tmp}}/spdld-$(id -u)\n"
        "    mkdir -m 0700 $SPDLD_HOME || test -O $SPDLD_HOME\n"
        "    export SPDLD_ADDRESS=$SPDLD_HOME/run\n"
        "    spdld --set runtime_dir=$SPDLD_HOME/run --set state_dir=$SPDLD_HOME/state &\n",
        failure.what());
  }
}

// "pets-val.yaml" of "pets.yaml".
std::string validation_file(const std::string& file) {
  const std::filesystem::path path(file);
  return (path.parent_path() / (path.stem().string() + "-val" + path.extension().string()))
      .string();
}

Draft survey_for_validation(const std::string& path, const std::optional<std::string>& root,
                            Draft& training) {
  if (training.output.empty())
    throw Failure(kWrongUsage, "--val makes two files: say by -o FILE where the first is written");
  training.has_validation = true;
  Draft draft = survey_validation(path, root, training);
  draft.output = validation_file(training.output);
  return draft;
}

void write_both(const Context& context, const Draft& training, const Draft& validation) {
  const std::string texts[] = {pipeline_text(training), pipeline_text(validation)};
  std::error_code failure;
  if (std::filesystem::exists(validation.output, failure)) fail_of_file_there(validation.output);
  write_new(training.output, texts[0]);
  write_new(validation.output, texts[1]);
  context.out << fmt::format("{0} and {1} are written; read them, then: spdlctl preview -f {0}\n",
                             printable(training.output), printable(validation.output));
  tell_how_to_start(context);
}

}  // namespace

void add_init_command(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand(
      "init",
      "writes a pipeline for your data: a folder of images, videos or sound, one folder a class or "
      "not; a folder of .tar shards, or one; a .csv, .tsv or .jsonl; COCO's .json. Asks no daemon");
  const auto path = std::make_shared<std::string>();
  const auto file = std::make_shared<std::string>();
  const auto root = std::make_shared<std::optional<std::string>>();
  const auto validation = std::make_shared<std::optional<std::string>>();
  command->add_option("PATH", *path, "what to look at")->required();
  command->add_option("-o,--output", *file, "where to write it; without it, to standard output")
      ->type_name("FILE");
  command
      ->add_option("--root", *root,
                   "what a table or annotations name files relative to, if it is not "
                   "found")
      ->type_name("DIR");
  command
      ->add_option("--val", *validation,
                   "what is kept for validation, as PATH is for training: a second pipeline, in "
                   "FILE's name with -val, reads it in order, without random draws")
      ->type_name("PATH");
  command->callback([&context, path, file, root, validation] {
    Draft draft = survey(*path, *root);
    draft.output = *file;
    if (*validation) {
      write_both(context, draft, survey_for_validation(**validation, *root, draft));
      return;
    }
    const std::string text = pipeline_text(draft);
    if (file->empty()) {
      context.out << text;
      return;
    }
    write_new(*file, text);
    context.out << fmt::format("{0} is written; read it, then: spdlctl preview -f {0}\n",
                               printable(*file));
    tell_how_to_start(context);
  });
}

}  // namespace spdld::ctl
