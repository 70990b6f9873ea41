// SPDX-License-Identifier: Apache-2.0
#include "store/state_lock.h"

#include <fmt/format.h>

namespace spdld::store {
namespace {

tl::unexpected<Status> taken(const std::string& state_dir, const std::string& holder) {
  return error(Code::kAlreadyExists,
               fmt::format("state_dir {} belongs to another daemon ({}), and two would overwrite "
                           "each other's jobs: stop that one, or give this one a directory of its "
                           "own with --set state_dir=DIR (one for each node, where nodes share a "
                           "file system)",
                           state_dir, holder));
}

}  // namespace

Result<StateLock> StateLock::take(const std::string& state_dir) {
  const std::string path = state_dir + "/spdld.lock";
  auto lock = LockFile::take(path, LockFile::Kind::kOfd);
  if (lock) return StateLock(*std::move(lock), {});
  if (lock.error().code() == Code::kAlreadyExists) return taken(state_dir, lock.error().message());
  // Who cannot write needs no lock, and must not meet another daemon's changes half-way.
  if (const std::string holder = LockFile::holder(path); !holder.empty())
    return taken(state_dir, holder);
  return StateLock(std::nullopt,
                   fmt::format("state_dir {} cannot be locked ({}): nothing keeps another daemon "
                               "from using it, too; give each a state_dir of its own",
                               state_dir, lock.error().message()));
}

}  // namespace spdld::store
