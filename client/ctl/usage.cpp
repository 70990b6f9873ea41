// SPDX-License-Identifier: Apache-2.0
#include "ctl/usage.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <vector>

#include "base/text/near_names.h"
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

// What other tools call it.
std::string our_word(const std::string& word) {
  static const std::map<std::string, std::string> kWords = {
      {"describe", "get"},  {"list", "get"},     {"logs", "get failures"}, {"ls", "get"},
      {"remove", "delete"}, {"rm", "delete"},    {"scale", "job resize"},  {"read", "consume"},
      {"run", "consume"},   {"create", "apply"}, {"stop", "delete job"},   {"new", "init"},
      {"generate", "init"}};
  const auto found = kWords.find(word);
  return found == kWords.end() ? "" : "; did you mean '" + found->second + "'?";
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

std::string misplaced_word(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return {};
  const std::string& word = words.front();
  std::string typed;
  const CLI::App* command = last_command(app, typed);
  if (command != &app) {
    // What stands before a command belongs to none.
    const std::string& first = app.get_subcommands().front()->get_name();
    const auto before = std::find(arguments.begin(), arguments.end(), first);
    if (std::find(arguments.begin(), before, word) != before) {
      command = &app;
      typed = app.get_name();
    }
  }
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    const std::string near = did_you_mean(name, options_of(*command, app));
    return fmt::format("'{}' is no option of '{}'", cell(name), typed) +
           (near.empty() ? fmt::format("; see '{} --help'", typed) : near);
  }
  const std::vector<std::string> commands = commands_of(*command);
  if (commands.empty())
    return fmt::format("'{}' takes nothing like '{}'; see '{} --help'", typed, cell(word), typed);
  const std::string other = command == &app ? our_word(word) : "";
  return fmt::format("'{}' is no command of '{}'{}", cell(word), typed,
                     other.empty() ? hint(word, commands) : other);
}

}  // namespace spdld::ctl
