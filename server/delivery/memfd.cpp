// SPDX-License-Identifier: Apache-2.0
#include "delivery/memfd.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

namespace spdld::delivery {
namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned kNoExecSeal = 0x0008U;  // since Linux 6.3
#else
constexpr unsigned kNoExecSeal = MFD_NOEXEC_SEAL;
#endif

}  // namespace

Result<UniqueFd> open_memfd(const char* name, unsigned flags) {
  flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create(name, flags | kNoExecSeal));
  if (!fd && errno == EINVAL) fd = UniqueFd(::memfd_create(name, flags));
  if (!fd) return tl::unexpected(errno_status(errno, "memfd_create of " + std::string(name)));
  return fd;
}

}  // namespace spdld::delivery
