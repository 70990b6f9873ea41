// SPDX-License-Identifier: Apache-2.0
#include "ctl/complete/complete.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <utility>

namespace spdld::ctl {
namespace {

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

bool is_repeatable(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

std::string name_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  return option.get_name(true);
}

// Options of a command count behind its nested ones, too.
std::vector<const CLI::Option*> options_of(const CLI::App* command) {
  std::vector<const CLI::Option*> options;
  for (; command != nullptr; command = command->get_parent()) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->nonpositional()) options.push_back(option);
    }
  }
  return options;
}

// A command line up to its last word, read as CLI11 would.
class Line {
 public:
  explicit Line(const CLI::App& app) : command_(&app) {}

  void read(const std::string& word) {
    if (awaited_ != nullptr) {
      give(*awaited_, word);
      awaited_ = nullptr;
    } else if (word == "--") {
      no_options_ = true;
    } else if (!no_options_ && word.size() > 1 && word.starts_with('-')) {
      read_option(word);
    } else if (const CLI::App* nested = nested_command(word)) {
      command_ = nested;
      positionals_ = 0;
    } else if (const CLI::Option* positional = next_positional()) {
      give(*positional, word);
      if (!is_repeatable(*positional)) ++positionals_;
    } else {
      known_ = false;
    }
  }

  bool known() const { return known_; }
  bool no_options() const { return no_options_; }
  const CLI::App& command() const { return *command_; }
  const Typed& typed() const { return typed_; }
  // The option whose value is the next word, if it is one's.
  const CLI::Option* awaited() const { return awaited_; }
  bool given(const CLI::Option& option) const { return typed_.contains(name_of(option)); }

  const CLI::Option* option(const std::string& name) const {
    for (const CLI::Option* option : options_of(command_)) {
      if (option->check_name(name)) return option;
    }
    return nullptr;
  }

  // The last one again, if it takes several words.
  const CLI::Option* next_positional() const {
    std::size_t before = positionals_;
    for (const CLI::Option* option : command_->get_options()) {
      if (!option->nonpositional() && before-- == 0) return option;
    }
    return nullptr;
  }

 private:
  void read_option(const std::string& word) {
    const bool is_long = word.starts_with("--");
    const std::size_t equals = is_long ? word.find('=') : std::string::npos;
    const std::string name = is_long ? word.substr(0, equals) : word.substr(0, 2);
    const CLI::Option* const found = option(name);
    if (found == nullptr) {
      known_ = false;
    } else if (!takes_value(*found)) {
      give(*found, {});
    } else if (equals != std::string::npos) {
      give(*found, word.substr(equals + 1));
    } else if (!is_long && word.size() > 2) {
      give(*found, word.substr(2));
    } else {
      awaited_ = found;
    }
  }

  const CLI::App* nested_command(const std::string& word) const {
    if (positionals_ > 0) return nullptr;
    for (const CLI::App* nested : command_->get_subcommands(nullptr)) {
      if (nested->check_name(word)) return nested;
    }
    return nullptr;
  }

  void give(const CLI::Option& option, const std::string& value) {
    typed_[name_of(option)].push_back(value);
  }

  const CLI::App* command_;
  const CLI::Option* awaited_ = nullptr;
  std::size_t positionals_ = 0;  // of the command, so far
  bool no_options_ = false;      // behind "--"
  bool known_ = true;            // every word has its place
  Typed typed_;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// What --help calls an option's value: "TEXT:{table,json}", "FILE"; a positional has a name.
std::string value_name(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (option.nonpositional() || type.find('{') != std::string::npos) return type;
  return option.get_name(true);
}

void add_name(const std::string& name, const Line& line, const AskNames& ask_names,
              Completion& completion) {
  if (name == "FILE" || name == "PATH") {
    completion.files = true;
  } else if (name == "DIR") {
    completion.directories = true;
  } else {
    for (Candidate& candidate : ask_names(name, line.typed()))
      completion.candidates.push_back(std::move(candidate));
  }
}

void add_values(const CLI::Option& option, const Line& line, const AskNames& ask_names,
                Completion& completion) {
  const std::string name = value_name(option);
  if (const std::size_t open = name.find('{'); open != std::string::npos) {
    const std::size_t close = std::min(name.find('}', open), name.size());
    for (const std::string& choice : split(name.substr(open + 1, close - open - 1), ','))
      completion.candidates.push_back({.word = choice});
    return;
  }
  if (name.find('|') == std::string::npos) return add_name(name, line, ask_names, completion);
  for (const std::string& form : split(name, '|')) {
    // What stands in capitals is the user's to fill in.
    const auto* const begin = form.data();
    const auto* const fill_in = std::find_if(begin, begin + form.size(),
                                             [](unsigned char c) { return std::isupper(c) != 0; });
    const std::string word(begin, fill_in);
    if (word.empty()) {
      add_name(form, line, ask_names, completion);
    } else {
      completion.candidates.push_back({.word = word, .goes_on = word != form});
    }
  }
}

void add_options(const Line& line, Completion& completion) {
  std::vector<std::string> names;  // a nested command has a --help of its own
  for (const CLI::Option* option : options_of(&line.command())) {
    if (option->get_lnames().empty() || (line.given(*option) && !is_repeatable(*option))) continue;
    const std::string name = name_of(*option);
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(name);
    completion.candidates.push_back({.word = name, .means = option->get_description()});
  }
}

// A command, a positional's value, or else what cannot be left out.
void add_words(const Line& line, const AskNames& ask_names, Completion& completion) {
  const CLI::Option* const positional = line.next_positional();
  const auto commands = line.command().get_subcommands(nullptr);
  for (const CLI::App* command : commands) {
    if (!command->get_group().empty())
      completion.candidates.push_back(
          {.word = command->get_name(), .means = command->get_description()});
  }
  if (positional != nullptr) {
    add_values(*positional, line, ask_names, completion);
  } else if (commands.empty()) {
    for (const CLI::Option* option : options_of(&line.command())) {
      if (option->get_required() && !line.given(*option))
        completion.candidates.push_back(
            {.word = name_of(*option), .means = option->get_description()});
    }
  }
}

}  // namespace

Completion complete(const CLI::App& app, const std::vector<std::string>& words,
                    const AskNames& ask_names) {
  Line line(app);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) line.read(words[i]);
  if (!line.known()) return {};
  const std::string word = words.empty() ? std::string() : words.back();

  Completion completion;
  if (line.awaited() != nullptr) {
    add_values(*line.awaited(), line, ask_names, completion);
  } else if (!line.no_options() && word.starts_with("--") && word.find('=') != std::string::npos) {
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* const option = line.option(name);
    if (option == nullptr || !takes_value(*option)) return {};
    add_values(*option, line, ask_names, completion);
    for (Candidate& candidate : completion.candidates) candidate.word = name + "=" + candidate.word;
  } else if (!line.no_options() && word.starts_with('-')) {
    add_options(line, completion);
  } else {
    add_words(line, ask_names, completion);
  }
  std::erase_if(completion.candidates,
                [&](const Candidate& candidate) { return !candidate.word.starts_with(word); });
  return completion;
}

}  // namespace spdld::ctl
