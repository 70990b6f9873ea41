// SPDX-License-Identifier: Apache-2.0
#include "ctl/spdlctl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <exception>

#include "ctl/address.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/table.h"
#include "ctl/usage.h"
#include "spdld/error.h"

namespace spdld::ctl {
namespace {

constexpr int kInvalidArgument = 3;  // gRPC's number
constexpr double kTimeoutS = 30;
constexpr char kComplete[] = "__complete";  // what completion/ calls

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// What was typed without -f where a command wants a pipeline's file by it; empty: that is not it.
std::string file_without_option(const CLI::App& app) {
  const auto commands = app.get_subcommands();  // those typed
  if (commands.empty()) return {};
  const CLI::App& command = *commands.front();
  const CLI::Option* file = command.get_option_no_throw("--file");
  const std::vector<std::string> extra = app.remaining(true);
  if (file == nullptr || !file->empty() || extra.size() != 1 || extra[0].starts_with("-"))
    return {};
  return fmt::format("{0}: a pipeline's file is given by -f: spdlctl {1} -f {0}", cell(extra[0]),
                     command.get_name());
}

int report(std::ostream& out, std::ostream& err, ExitCode code, const std::string& message) {
  out.flush();
  err << "spdlctl: " << message << std::endl;
  return code;
}

}  // namespace

std::vector<std::string> Context::directories() const {
  std::vector<std::string> found;
  for (const std::string& given : addresses) {
    for (std::size_t begin = 0; begin <= given.size();) {
      const std::size_t end = std::min(given.find(',', begin), given.size());
      const std::string address = given.substr(begin, end - begin);
      begin = end + 1;
      if (address.empty() && (addresses.size() > 1 || !given.empty())) {
        throw Failure(kWrongUsage,
                      fmt::format("--address '{}' names an empty address among others", given));
      }
      found.push_back(runtime_dir(address));
      if (std::count(found.begin(), found.end(), found.back()) > 1)
        throw Failure(kWrongUsage, fmt::format("--address {} is given twice", found.back()));
    }
  }
  if (found.empty()) found.push_back(runtime_dir(""));
  return found;
}

std::string Context::directory() const {
  const std::vector<std::string> found = directories();
  if (found.size() == 1) return found.front();
  throw Failure(kWrongUsage,
                fmt::format("--address names {} daemons; only 'apply --job JOB --at step:EPOCH/N' "
                            "takes several: name one of them",
                            found.size()));
}

std::chrono::milliseconds Context::timeout() const {
  return milliseconds_of(timeout_s.value_or(kTimeoutS));
}

void Context::limit(LoaderOptions& loader) const {
  if (!timeout_s) return;
  loader.timeout = milliseconds_of(*timeout_s);
  loader.connect_timeout = std::min(loader.connect_timeout, loader.timeout);
}

Daemon Context::connect() const { return Daemon(directory(), timeout()); }

Daemon::OnProgress Context::progress() const {
  if (::isatty(STDERR_FILENO) == 0) return [](const v1::Progress&) {};
  return [&err = err](const v1::Progress& progress) {
    std::string line = cell(progress.what()) + ": " + std::to_string(progress.done());
    if (progress.total() > 0) line += " of " + std::to_string(progress.total());
    // Clears the rest of the line, and leaves the cursor where the next text overwrites it.
    err << '\r' << line << "\x1b[K\r" << std::flush;
  };
}

std::shared_ptr<Output> add_output(CLI::App& command) {
  auto output = std::make_shared<Output>();
  command.add_option("-o,--output", output->format, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  return output;
}

void tell(const nlohmann::ordered_json& facts, const std::string& sentence, const Output& output,
          const Context& context) {
  // What was typed may be anything, and JSON is UTF-8.
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  context.out << (output.json() ? facts.dump(2, ' ', false, kReplace) : sentence) << '\n';
}

int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Context context{out, err};
  CLI::App app("spdlctl: asks and steers the spdld of this node", "spdlctl");
  app.set_version_flag("--version", "spdlctl " SPDLD_VERSION);
  app.add_option("--address", context.addresses,
                 "the daemon's runtime directory; default: $SPDLD_ADDRESS, else /run/spdld. "
                 "Several, by commas or repeated, for an apply to one job that they all feed")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_option(
         "--timeout", context.timeout_s,
         "seconds to wait for an answer; what indexes or decodes is waited for. For an apply to "
         "several daemons, consume and bench: seconds without a sign of life; for the latter two "
         "60 if it is not given. For service install: seconds until its daemon is ready")
      ->check(CLI::Range(0.001, 86'400.0))
      ->default_str(fmt::format("{}", kTimeoutS));
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Exit codes: 0 done, 1 the operation failed, 2 wrong usage or configuration, 3 daemon "
      "unreachable.");
  add_control_commands(app, context);
  add_job_commands(app, context);
  add_apply_commands(app, context);
  add_pipeline_commands(app, context);
  add_preview_commands(app, context);
  add_consumer_commands(app, context);
  add_init_command(app, context);
  add_probe_command(app, context);
  add_diagnose_command(app, context);
  add_headspace_command(app, context);
  add_tune_command(app, context);
  add_service_commands(app, context);
  add_completion_command(app, context);

  try {
    // What is typed so far is no command line yet.
    if (!arguments.empty() && arguments.front() == kComplete) {
      print_completions(app, {arguments.begin() + 1, arguments.end()}, context);
      return kDone;
    }
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(std::move(reversed));
    out.flush();
    return kDone;
  } catch (const CLI::RequiredError& missing) {
    // A word that is no command counts as none given: name it.
    const std::string file = file_without_option(app);
    if (!file.empty()) return report(out, err, kWrongUsage, file);
    const std::string word = misplaced_word(app, arguments);
    if (!word.empty()) return report(out, err, kWrongUsage, word);
    return app.exit(missing, out, err) == 0 ? kDone : kWrongUsage;
  } catch (const CLI::ExtrasError&) {
    return report(out, err, kWrongUsage, misplaced_word(app, arguments));
  } catch (const CLI::ParseError& stop) {
    // --help and --version come this way too.
    return app.exit(stop, out, err) == 0 ? kDone : kWrongUsage;
  } catch (const Failure& failure) {
    return report(out, err, failure.exit_code(), failure.what());
  } catch (const ConnectionError& failure) {
    return report(out, err, kUnreachable, failure.what());
  } catch (const Error& failure) {
    return report(out, err, failure.code() == kInvalidArgument ? kWrongUsage : kFailed,
                  failure.what());
  } catch (const std::exception& failure) {
    return report(out, err, kFailed, failure.what());
  }
}

}  // namespace spdld::ctl
