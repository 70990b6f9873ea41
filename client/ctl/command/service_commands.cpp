// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/text/counted.h"
#include "base/text/printable.h"
#include "ctl/address.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/program/program.h"
#include "ctl/service/patience.h"
#include "ctl/service/unit_change.h"
#include "ctl/service/user_manager.h"
#include "ctl/service/user_units.h"

namespace spdld::ctl {
namespace {

using nlohmann::ordered_json;

constexpr std::chrono::milliseconds kPatience{1000};  // with a daemon that accepts nobody
constexpr char kSystemDirectory[] = "/run/spdld";     // where launch=True looks first

bool answers(const std::string& directory) {
  try {
    connect_control(directory, kPatience);
    return true;
  } catch (const Failure&) {
    return false;
  }
}

std::string path_of(const std::string& unit) { return user_unit_directory() + "/" + unit; }

std::vector<std::string> unit_names() { return {kServiceName, kSocketNames[0], kSocketNames[1]}; }

// Units that are there. Throws Failure, without `force`, if one is not as it was installed.
std::vector<std::string> replaceable_units(bool force) {
  std::vector<std::string> there;
  for (const std::string& name : unit_names()) {
    const UnitFile file = unit_file_at(path_of(name));
    if (file == UnitFile::kAbsent) continue;
    if (file != UnitFile::kSealed && !force) {
      throw Failure(kFailed,
                    fmt::format("{} is {}: move it away, or say --force to lose it; additions of "
                                "your own belong into {}.d ('systemctl --user edit')",
                                printable(path_of(name)), name_of(file), name));
    }
    there.push_back(name);
  }
  return there;
}

std::string program_to_run() {
  const std::string named = daemon_program();
  std::string path = path_of_program(named);
  if (path.empty()) {
    throw Failure(kFailed, fmt::format("there is no program {}: install spdld, or say where it is "
                                       "by $SPDLD_BIN",
                                       printable(named)));
  }
  return path;
}

// The daemon that a loader with launch=True reads from, as it looks.
std::string found_by_launch(const UserManager& manager) {
  return answers(kSystemDirectory) ? kSystemDirectory : manager.directory();
}

// Which loaders find which daemon.
std::string clients_sentence(const UserManager& manager) {
  std::string sentence = fmt::format(
      "Loaders with launch=True find it there. For spdlctl and other loaders:\n"
      "    export SPDLD_ADDRESS={}\n",
      manager.directory());
  if (found_by_launch(manager) == kSystemDirectory) {
    sentence += fmt::format(
        "The system's spdld answers at {}: launch=True takes that one, unless $SPDLD_ADDRESS names "
        "yours.\n",
        kSystemDirectory);
  }
  return sentence;
}

std::string lingering_sentence() {
  return lingers()
             ? "It stays when you log out, and is there from boot on (lingering is on)."
             : "It ends when you log out; 'loginctl enable-linger' makes it stay, and be there "
               "from boot on.";
}

void check_nobody_serves(const UserManager& manager) {
  if (manager.is_active(kSocketNames[1]) || !answers(manager.directory())) return;
  throw Failure(kFailed,
                fmt::format("a daemon that systemd has not started serves in {0}: one that "
                            "launch=True has started ends 2 s after its last loader. Then run this "
                            "again ('spdlctl --address {0} get sessions' shows who reads)",
                            manager.directory()));
}

void check_configuration(const std::string& program, const std::string& config,
                         Patience& patience) {
  if (config.empty()) return;
  patience.wait_for(
      fmt::format("the check of {} and the pipelines' files that it names; nothing "
                  "is installed yet",
                  printable(config)));
  Ran ran;
  try {
    ran = patience.run({program, "--config", config, "--check"});
  } catch (const OutOfPatience& failure) {
    throw Failure(kFailed, fmt::format("{}: a file may lie on storage that does not answer; "
                                       "nothing is installed",
                                       failure.what()));
  }
  if (!ran.ok())
    throw Failure(kWrongUsage,
                  fmt::format("the service would not start: {}",
                              ran.error != 0 ? std::generic_category().message(ran.error)
                                             : printable(ran.text)));
}

// A confined service starts only where the directory that its namespace binds is there.
void make_state_directory() {
  const std::string directory =
      std::filesystem::path(user_state_directory()).parent_path().string();
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) {
    throw Failure(kFailed,
                  fmt::format("cannot make {}: {}", printable(directory), failed.message()));
  }
}

// Starts it by `how`, and waits until it is ready.
void start(const UserManager& manager, const char* how, bool confined, Patience& patience) {
  patience.wait_for(
      fmt::format("{} to be ready: it reads the files of its pipelines, and lists the data of new "
                  "ones ('journalctl --user -u spdld -f' follows it)",
                  kServiceName));
  try {
    manager.run({how, kServiceName}, &patience);
  } catch (const OutOfPatience& failure) {
    throw Failure(
        kFailed, fmt::format("{}: {} is ready once it has read its pipelines' files and listed the "
                             "data of new ones, which may not answer; 'journalctl --user -u "
                             "spdld' tells how far it came",
                             failure.what(), kServiceName));
  } catch (const Failure& failure) {
    throw Failure(
        kFailed,
        fmt::format("{}; 'journalctl --user -u spdld' tells why{}", failure.what(),
                    confined
                        ? ". A confined service needs user namespaces, which some systems forbid, "
                          "and a ReadWritePaths= for a cache.dir; 'spdlctl service install' "
                          "without --confined needs neither"
                        : ""));
  }
}

// Writes the units, and has systemd listen. Returns whether one has changed.
bool put_into_force(const UserManager& manager, const std::vector<UserUnit>& units, bool confined,
                    Patience& patience) {
  UnitChange change(manager, user_unit_directory());
  bool changed = false;
  try {
    for (const UserUnit& unit : units) changed = change.write(unit) || changed;
    manager.run({"daemon-reload"});
    patience.wait_for("systemd to listen");
    manager.run({"enable", "--now", kSocketNames[0], kSocketNames[1]}, &patience);
    // Whether the system lets a confined one be is known when it has been started. One that runs is
    // of the units before; its ranks wait for the next one.
    if (confined) {
      start(manager, changed ? "restart" : "start", confined, patience);
    } else if (changed) {
      start(manager, "try-restart", confined, patience);
    }
  } catch (const Failure& failure) {
    throw Failure(failure.exit_code(), failure.what() + change.take_back());
  }
  return changed;
}

void install(const std::string& config, bool confined, bool force, const Output& output,
             const Context& context) {
  const UserManager manager;
  Patience patience(context.timeout(), context.err);
  const std::string program = program_to_run();
  const std::vector<UserUnit> units =
      user_units(program, config.empty() ? "" : std::filesystem::absolute(config).string(),
                 confined ? Confinement::kUserNamespace : Confinement::kPlain);
  (void)replaceable_units(force);
  check_configuration(program, config, patience);
  check_nobody_serves(manager);
  if (confined) make_state_directory();
  const bool changed = put_into_force(manager, units, confined, patience);
  const std::string sentence = fmt::format(
      "{} has {}, {} and {}{}: {} serves in {}, from the first connection on, and keeps its state "
      "in {}\n{}{}",
      printable(user_unit_directory()), kServiceName, kSocketNames[0], kSocketNames[1],
      changed ? "" : " as before", printable(program), printable(manager.directory()),
      printable(user_state_directory()), clients_sentence(manager), lingering_sentence());
  tell({{"unit", path_of(kServiceName)},
        {"written", changed},
        {"program", program},
        {"address", manager.directory()},
        {"found_by_launch", found_by_launch(manager)},
        {"lingers", lingers()}},
       sentence, output, context);
}

// "/usr/bin/spdld" of "{ path=/usr/bin/spdld ; argv[]=... }".
std::string program_of(const std::string& command) {
  const std::size_t begin = command.find("path=");
  if (begin == std::string::npos) return "-";
  return command.substr(begin + 5, command.find(" ; ", begin) - begin - 5);
}

void show_status(const Output& output, const Context& context) {
  const UserManager manager;
  const UnitFile file = unit_file_at(path_of(kServiceName));
  if (file == UnitFile::kAbsent) {
    throw Failure(kFailed, fmt::format("{} is not there: 'spdlctl service install' writes it",
                                       printable(path_of(kServiceName))));
  }
  auto service = manager.show(kServiceName);
  const bool listens =
      std::ranges::all_of(kSocketNames, [&](const char* name) { return manager.is_active(name); });
  const std::string program = program_of(service["ExecStart"]);
  const bool there = path_of_program(program) == program;
  const std::string sentence = fmt::format(
      "unit     {}, {}\n"
      "program  {}{}\n"
      "listens  {}in {}\n"
      "service  {}\n{}{}",
      printable(path_of(kServiceName)), name_of(file), printable(program),
      there ? "" : ", which is not there any more: 'spdlctl service install' names another",
      listens ? "" : "not ", printable(manager.directory()),
      service["ActiveState"] == "active" ? "active, pid " + service["MainPID"]
                                         : service["ActiveState"],
      clients_sentence(manager), lingering_sentence());
  tell({{"unit", path_of(kServiceName)},
        {"file", name_of(file)},
        {"program", program},
        {"program_there", there},
        {"address", manager.directory()},
        {"found_by_launch", found_by_launch(manager)},
        {"listens", listens},
        {"service", service["ActiveState"]},
        {"lingers", lingers()}},
       sentence, output, context);
}

// Of a service that runs: asking one that does not would start it.
int count_readers(const UserManager& manager, const Context& context) {
  if (!manager.is_active(kServiceName)) return 0;
  try {
    return Daemon(manager.directory(), context.timeout()).sessions().sessions_size();
  } catch (const Failure&) {
    return 0;  // it hangs, or has just ended: there is nobody to be told of
  }
}

void remove(bool force, const Output& output, const Context& context) {
  const UserManager manager;
  const std::vector<std::string> there = replaceable_units(force);
  if (there.empty()) {
    throw Failure(kFailed, fmt::format("there is no {} in {}: nothing to remove", kServiceName,
                                       printable(user_unit_directory())));
  }
  const int readers = count_readers(manager, context);
  if (readers > 0) {
    context.err
        << fmt::format(
               "{} from it: those that bring a file and have launch=True go on with a daemon "
               "of their own, others wait here for their timeout (60 s), and end then",
               counted(readers, "rank reads", "ranks read"))
        << std::endl;
  }
  std::vector<std::string> disable = {"disable", "--now"};
  disable.insert(disable.end(), there.begin(), there.end());
  manager.run(disable);
  for (const std::string& name : there) {
    std::error_code failed;
    if (!std::filesystem::remove(path_of(name), failed) && failed) {
      throw Failure(
          kFailed, fmt::format("cannot remove {}: {}", printable(path_of(name)), failed.message()));
    }
  }
  manager.run({"daemon-reload"});
  tell({{"removed", there}, {"readers", readers}, {"state_dir", user_state_directory()}},
       fmt::format("{} are removed from {}; what it kept stays in {}", fmt::join(there, ", "),
                   printable(user_unit_directory()), printable(user_state_directory())),
       output, context);
}

}  // namespace

void add_service_commands(CLI::App& app, const Context& context) {
  CLI::App* service = app.add_subcommand(
      "service", "an spdld of your own, which systemd starts when somebody connects");
  service->require_subcommand(1);
  CLI::App* add = service->add_subcommand("install", "writes its units, and listens");
  const auto config = std::make_shared<std::string>();
  add->add_option("--config", *config,
                  "the daemon's YAML; its runtime_dir and state_dir do not count")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  CLI::App* show = service->add_subcommand("status", "how it is, and which daemon clients find");
  CLI::App* end = service->add_subcommand("remove", "ends it, and removes its units");
  const auto confined = std::make_shared<bool>(false);
  add->add_flag(
      "--confined", *confined,
      "in a user namespace: it writes its own state alone, and has no network and no GPU");
  const auto force = std::make_shared<bool>(false);
  for (CLI::App* command : {add, end})
    command->add_flag(
        "--force", *force,
        "also write over or remove units that were edited, or that spdlctl has not written");
  add->callback([&context, config, confined, force, output = add_output(*add)] {
    install(*config, *confined, *force, *output, context);
  });
  show->callback([&context, output = add_output(*show)] { show_status(*output, context); });
  end->callback([&context, force, output = add_output(*end)] { remove(*force, *output, context); });
}

}  // namespace spdld::ctl
