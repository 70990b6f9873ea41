// SPDX-License-Identifier: Apache-2.0
#include "ctl/submission.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "ctl/failure.h"

namespace spdld::ctl {
namespace {

constexpr std::size_t kMaxTextBytes = 1 << 20;  // as the daemon's parser has it

std::string read_all(std::istream& in, const std::string& name) {
  std::string text(kMaxTextBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (in.bad()) throw Failure(kWrongUsage, fmt::format("cannot read {}", name));
  if (text.size() > kMaxTextBytes) {
    throw Failure(kWrongUsage, fmt::format("{} is longer than {} bytes, which no pipeline is", name,
                                           kMaxTextBytes));
  }
  return text;
}

}  // namespace

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::map<std::string, std::string> referenced_env(std::string_view yaml, const EnvLookup& env) {
  constexpr std::string_view kOpen = "${env:";
  std::map<std::string, std::string> found;
  for (std::size_t at = yaml.find(kOpen); at != std::string_view::npos; at = yaml.find(kOpen, at)) {
    at += kOpen.size();
    const std::size_t end = yaml.find('}', at);
    if (end == std::string_view::npos) break;
    const std::string name(yaml.substr(at, end - at));
    if (const auto value = env(name)) found.emplace(name, *value);
    at = end;
  }
  return found;
}

std::map<std::string, std::string> parse_vars(const std::vector<std::string>& vars) {
  std::map<std::string, std::string> parsed;
  for (const std::string& var : vars) {
    const std::size_t equals = var.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw Failure(kWrongUsage, fmt::format("--var '{}' is not NAME=VALUE", var));
    }
    const auto [entry, added] = parsed.emplace(var.substr(0, equals), var.substr(equals + 1));
    if (!added) throw Failure(kWrongUsage, fmt::format("--var {} is given twice", entry->first));
  }
  return parsed;
}

std::shared_ptr<Submission> add_submission(CLI::App& command) {
  auto submission = std::make_shared<Submission>();
  command.add_option("-f,--file", submission->file, "the pipeline's YAML; '-': standard input")
      ->required()
      ->type_name("FILE");
  command.add_option("--var", submission->vars, "NAME=VALUE, of the pipeline's vars; repeatable")
      ->allow_extra_args(false);
  return submission;
}

std::shared_ptr<Submission> add_tried_submission(CLI::App& command) {
  auto submission = add_submission(command);
  command
      .add_option("--python", submission->python,
                  "the interpreter that runs the pipeline's own functions meanwhile, where none "
                  "does; it needs the package spdld")
      ->type_name("PROGRAM");
  return submission;
}

v1::PipelineText Submission::read() const {
  v1::PipelineText text = read_submission(file, vars, process_env);
  text.set_starts_runners(!python.empty());
  return text;
}

v1::PipelineText read_submission(const std::string& file, const std::vector<std::string>& vars,
                                 const EnvLookup& env) {
  v1::PipelineText text;
  if (file == "-") {
    text.set_yaml(read_all(std::cin, "standard input"));
    text.set_file("-");
  } else {
    std::error_code failure;
    if (std::filesystem::is_directory(file, failure)) {
      throw Failure(kWrongUsage,
                    fmt::format("{} is a directory; -f takes one pipeline's file", file));
    }
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      throw Failure(kWrongUsage, fmt::format("cannot open {}: {}", file,
                                             std::generic_category().message(errno)));
    }
    text.set_yaml(read_all(in, file));
    const auto absolute = std::filesystem::absolute(file, failure);
    if (failure) throw Failure(kWrongUsage, fmt::format("{}: {}", file, failure.message()));
    text.set_file(absolute.lexically_normal().string());
  }
  if (text.yaml().empty()) throw Failure(kWrongUsage, fmt::format("{} is empty", file));
  for (const auto& [name, value] : parse_vars(vars)) (*text.mutable_vars())[name] = value;
  for (const auto& [name, value] : referenced_env(text.yaml(), env))
    (*text.mutable_env())[name] = value;
  return text;
}

}  // namespace spdld::ctl
