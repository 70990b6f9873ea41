// SPDX-License-Identifier: Apache-2.0
#include "ctl/service/user_units.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/service/unit_texts.h"

namespace spdld::ctl {
namespace fs = std::filesystem;
namespace {

constexpr char kSeal[] =
    "# Written by 'spdlctl service install', which writes over no edited one: ";

std::string seal_of(const std::string& text) {
  return fmt::format("{}{:016x}\n", kSeal, XXH3_64bits(text.data(), text.size()));
}

// Inside the quotes of a unit's command line.
std::string quoted_path(const std::string& path) {
  const bool bad = std::any_of(path.begin(), path.end(), [](unsigned char c) {
    return c < 0x20 || c == 0x7f || c == '"' || c == '\'' || c == '\\' || c == '$';
  });
  if (bad) {
    throw Failure(kWrongUsage, fmt::format("{}: systemd starts no program of such a path, with "
                                           "quotes, '\\', '$' or control characters in it; put a "
                                           "link to it elsewhere",
                                           printable(path)));
  }
  std::string quoted;
  for (const char c : path) quoted.append(c == '%' ? 2 : 1, c);  // '%' begins a specifier
  return quoted;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    throw Failure(kFailed, fmt::format("cannot read {}: {}", printable(path),
                                       std::generic_category().message(errno)));
  }
  return text;
}

[[noreturn]] void fail_to_write(const std::string& path, const std::string& why) {
  throw Failure(kFailed, fmt::format("cannot write {}: {}; without a service, "
                                     "Loader(..., launch=True) starts a daemon when it needs one",
                                     printable(path), why));
}

}  // namespace

std::vector<UserUnit> user_units(const std::string& program, const std::string& config,
                                 Confinement confinement) {
  std::string service = replaced(kServiceUnit, "@PROGRAM@", quoted_path(program));
  service = replaced(std::move(service), "@CONFIG@",
                     config.empty() ? "" : fmt::format("--config \"{}\" ", quoted_path(config)));
  service = replaced(std::move(service), "@CONFINED@",
                     confinement == Confinement::kUserNamespace ? kConfined : "");
  std::vector<UserUnit> units = {{kServiceName, std::move(service)},
                                 {kSocketNames[0], kControlSocketUnit},
                                 {kSocketNames[1], kDataSocketUnit}};
  for (UserUnit& unit : units) unit.text.insert(0, seal_of(unit.text));
  return units;
}

UnitFile unit_file_at(const std::string& path) {
  std::error_code failed;
  const fs::file_status found = fs::symlink_status(path, failed);
  if (found.type() == fs::file_type::not_found) return UnitFile::kAbsent;
  if (failed)
    throw Failure(kFailed, fmt::format("cannot look at {}: {}", printable(path), failed.message()));
  if (found.type() != fs::file_type::regular) return UnitFile::kForeign;
  const std::string text = read_file(path);
  if (!text.starts_with(kSeal)) return UnitFile::kForeign;
  const std::size_t rest = std::min(text.find('\n'), text.size() - 1) + 1;
  return seal_of(text.substr(rest)) == text.substr(0, rest) ? UnitFile::kSealed : UnitFile::kEdited;
}

std::optional<std::string> unit_text_at(const std::string& path) {
  std::error_code failed;
  if (fs::symlink_status(path, failed).type() != fs::file_type::regular) return std::nullopt;
  return read_file(path);
}

const char* name_of(UnitFile file) {
  switch (file) {
    case UnitFile::kAbsent: return "absent";
    case UnitFile::kSealed: return "as installed";
    case UnitFile::kEdited: return "edited";
    case UnitFile::kForeign: break;
  }
  return "not of 'spdlctl service'";
}

bool write_unit(const std::string& directory, const UserUnit& unit) {
  const std::string path = directory + "/" + unit.name;
  if (unit_file_at(path) == UnitFile::kSealed && read_file(path) == unit.text) return false;
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed) fail_to_write(directory, failed.message());
  const std::string made = fmt::format("{}.{}", path, ::getpid());
  std::ofstream file(made, std::ios::binary);
  file << unit.text;
  file.close();
  if (file) {
    fs::rename(made, path, failed);
  } else {
    failed = {errno, std::generic_category()};
  }
  if (failed) {
    std::error_code unheard;
    fs::remove(made, unheard);
    fail_to_write(path, failed.message());
  }
  return true;
}

}  // namespace spdld::ctl
