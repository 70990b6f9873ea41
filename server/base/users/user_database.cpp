// SPDX-License-Identifier: Apache-2.0
#include "base/users/user_database.h"

#include <grp.h>
#include <pwd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>
#include <vector>

namespace spdld {
namespace {

// A number, or what `look_up` (getpwnam_r and its like) makes of a name. `what`: "user".
template <typename Entry, typename LookUp>
Result<std::uint32_t> find_id(const std::string& text, const char* what, const LookUp& look_up,
                              std::uint32_t Entry::*const id) {
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  // The largest id means "none" to the kernel.
  if (parsed.ec == std::errc() && parsed.ptr == end &&
      number < std::numeric_limits<std::uint32_t>::max())
    return number;
  std::vector<char> buffer(16384);
  Entry entry{};
  Entry* found = nullptr;
  int failure = 0;
  while ((failure = look_up(text.c_str(), &entry, buffer.data(), buffer.size(), &found)) ==
             ERANGE &&
         buffer.size() < (1U << 20))
    buffer.resize(buffer.size() * 2);
  if (found != nullptr) return entry.*id;
  if (failure == 0 || failure == ENOENT)
    return error(Code::kNotFound, "'" + text + "': there is no such " + what + " on this machine");
  return error(Code::kUnavailable, "'" + text + "': the " + what + " database fails: " +
                                       std::generic_category().message(failure));
}

}  // namespace

Result<uid_t> find_user(const std::string& text) {
  return find_id(text, "user", getpwnam_r, &passwd::pw_uid);
}

Result<gid_t> find_group(const std::string& text) {
  return find_id(text, "group", getgrnam_r, &group::gr_gid);
}

}  // namespace spdld
