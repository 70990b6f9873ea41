// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <span>

#include "base/users/credentials.h"

namespace spdld::source {

// What may be asked for, as in the bits of a mode.
inline constexpr unsigned kMayRead = 4;
inline constexpr unsigned kMayPass = 1;  // of a directory: reach what lies in it

// How the files of a file system say who may read them.
enum class RightsKind {
  kModes,  // by owner, group, mode and POSIX ACL, which is what the kernel goes by
  kOther,  // by rules that cannot be read here: what the mode allows everybody is all that is sure
  kNever,  // they are the kernel's or a device's, and nobody's data
};

// Of the file system of `fd`, which may be O_PATH.
RightsKind rights_kind(int fd);

// Whether `user` may do all of `wanted` (bits), by owner, group and mode of `info` and by `acl`:
// the value of system.posix_acl_access, empty where there is none. Decides as Linux does: the
// owner's entry counts alone; then named users, then all groups that match, each under the mask;
// then the others. An ACL that makes no sense allows nothing.
bool may(const Credentials& user, unsigned wanted, const struct stat& info,
         std::span<const std::byte> acl);

// The same for an open file or directory, `fd` of a file system of kind kModes; `info` is what
// fstat() says of it. Reads the ACL only where it can change the answer.
bool may_by_modes(const Credentials& user, unsigned wanted, int fd, const struct stat& info);

}  // namespace spdld::source
