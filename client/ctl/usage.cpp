// SPDX-License-Identifier: Apache-2.0
#include "ctl/usage.h"

#include <fmt/format.h>

#include <vector>

#include "base/near_names.h"
#include "ctl/table.h"

namespace spdld::ctl {
namespace {

// The command that was typed, as far as it was understood, and the words that led there.
const CLI::App* last_command(const CLI::App& app, std::string& words) {
  const CLI::App* at = &app;
  words = app.get_name();
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return at;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& command, const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* of : {&command, &app}) {
    for (const CLI::Option* option : of->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    if (&command == &app) break;
  }
  return names;
}

}  // namespace

std::string misplaced_word(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return {};
  std::string typed;
  const CLI::App* const command = last_command(app, typed);
  const std::string& word = words.front();
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    const std::string near = did_you_mean(name, options_of(*command, app));
    return fmt::format("'{}' is no option of '{}'", cell(name), typed) +
           (near.empty() ? fmt::format("; see '{} --help'", typed) : near);
  }
  const std::vector<std::string> commands = commands_of(*command);
  if (commands.empty())
    return fmt::format("'{}' takes nothing like '{}'; see '{} --help'", typed, cell(word), typed);
  return fmt::format("'{}' is no command of '{}'{}", cell(word), typed, hint(word, commands));
}

}  // namespace spdld::ctl
