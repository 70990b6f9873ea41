// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace spdld::ctl {

inline constexpr char kServiceName[] = "spdld.service";
inline constexpr const char* kSocketNames[] = {"spdld-control.socket", "spdld-data.socket"};

// A unit of a user's own spdld, for the user manager of systemd. Its first line is a seal: the
// digest of the rest, by which a file is known that somebody has edited since.
struct UserUnit {
  std::string name;
  std::string text;
};

enum class Confinement { kPlain, kUserNamespace };

// The service and its two sockets. `program` is absolute, `config` too, or empty. Throws Failure
// (kWrongUsage) for a path that no unit can name.
std::vector<UserUnit> user_units(const std::string& program, const std::string& config,
                                 Confinement confinement = Confinement::kPlain);

enum class UnitFile { kAbsent, kSealed, kEdited, kForeign };

// What lies at this path: a file under an intact seal, under a broken one, or without one (a link,
// too). Throws Failure where it cannot be read.
UnitFile unit_file_at(const std::string& path);
const char* name_of(
    UnitFile file);  // "absent", "as installed", "edited", "not of 'spdlctl service'"

// What the regular file at this path says; none where there is no such file. Throws Failure.
std::optional<std::string> unit_text_at(const std::string& path);

// Puts the unit into `directory`, which is made if need be, in the place of a file of its name.
// Returns whether it was another one. Throws Failure.
bool write_unit(const std::string& directory, const UserUnit& unit);

}  // namespace spdld::ctl
