// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spdld::source {

// The directories that may be read (access.roots), as they are after symlinks. Immutable; any
// thread.
class Roots {
 public:
  // Of `roots`, those that do not exist let nothing in.
  explicit Roots(std::vector<std::string> roots);

  bool unrestricted() const { return unrestricted_; }
  // `real_path`: absolute, without symlinks.
  bool contain(std::string_view real_path) const;
  // The path after symlinks; kPermissionDenied when it lies below none of the roots, kNotFound when
  // there is nothing.
  Result<std::string> resolve(const std::string& path) const;
  // That `real_path`, to which `path` leads, lies below none of them.
  Status refusal(const std::string& path, const std::string& real_path) const;

 private:
  std::vector<std::string> given_;
  std::vector<std::string> real_;
  bool unrestricted_ = false;
};

// Whether `path` may be read, after symlinks.
Status check_access(const std::string& path, const std::vector<std::string>& roots);

// Whether `real_path` is `real_directory` or lies below it.
bool is_beneath(std::string_view real_path, std::string_view real_directory);

// "what PATH: why" for a failed system call. For EACCES and EPERM it looks for the first directory
// or file on the way that the daemon's uid may not pass, and says how to let it in.
Status path_error(int err, std::string_view what, const std::string& path);

}  // namespace spdld::source
