// SPDX-License-Identifier: Apache-2.0
#include "source/file/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "source/bytes/path_error.h"

namespace spdld::source {

Result<std::string> read_text(const Access& access, const std::string& path,
                              std::size_t max_bytes) {
  // Non-blocking: a lease that another process holds on the file must not hold this one up.
  SPDLD_ASSIGN(const Access::Opened file,
               access.open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, "cannot read"));
  std::string text;
  std::array<char, 65536> part;
  while (true) {
    const ssize_t count = ::read(file.fd.get(), part.data(), part.size());
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return tl::unexpected(path_error(errno, "cannot read", path));
    text.append(part.data(), static_cast<std::size_t>(count));
    if (text.size() > max_bytes)
      return error(Code::kResourceExhausted,
                   path + " has more than " + std::to_string(max_bytes) + " bytes");
  }
}

}  // namespace spdld::source
