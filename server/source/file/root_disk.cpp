// SPDX-License-Identifier: Apache-2.0
#include "source/file/root_disk.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <utility>

#include "source/file/disk.h"

namespace spdld::source {
namespace {

constexpr int kRootFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;

// What to do with an archive that is named as a directory; empty: it is no archive.
std::string archive_hint(std::string_view path) {
  if (path.ends_with(".tar"))
    return "; samples in tar files are read where they are named under source.webdataset.shards";
  if (path.ends_with(".zip")) return "; unpack it: unzip " + std::string(path);
  constexpr std::string_view kPacked[] = {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"};
  const bool packed = std::any_of(std::begin(kPacked), std::end(kPacked),
                                  [path](std::string_view end) { return path.ends_with(end); });
  return packed ? "; unpack it: tar -xf " + std::string(path) : "";
}

}  // namespace

Result<Root> open_root(const std::string& path, const Access& access, const std::string& key) {
  if (path.empty() || path[0] != '/') {
    return error(Code::kInvalidArgument, "root '" + path + "' is no absolute path");
  }
  Access::Opened opened;
  const Denial denial = access.open(AT_FDCWD, path, Access::Links::kFollow, kRootFlags, opened);
  if (denial.err == ENOENT) {
    return error(Code::kNotFound,
                 key + ": there is no directory " + path +
                     " where spdld runs; correct it, or the variable that it is made of: "
                     "--var NAME=VALUE, or vars={\"NAME\": VALUE} in a Loader");
  }
  if (denial.err == ENOTDIR) {
    return error(Code::kNotFound,
                 key + ": " + path +
                     " is a file, or below one: name the directory that holds the files" +
                     archive_hint(path));
  }
  if (denial.err != 0) return tl::unexpected(Access::status(denial, "cannot list", path));
  std::string real = real_path_of_fd(opened.fd.get());
  if (real.empty()) real = path;
  return Root{.path = std::move(real),
              .fd = std::move(opened.fd),
              .device = opened.info.st_dev,
              .inode = opened.info.st_ino};
}

Result<Root> not_looked_at(const std::string& path) {
  return error(Code::kUnavailable, path + " was not looked at yet");
}

std::unique_ptr<ReopeningDisk> make_root_disk(const RootDiskOptions& options,
                                              const std::shared_ptr<const Access>& access,
                                              Result<Root> root) {
  const auto opened = [links = options.links, remote = options.remote](
                          Root& at, std::shared_ptr<const Access> reading) {
    const bool blocks = remote || !is_local(at.fd.get());
    return ReopeningDisk::Opened{
        .disk = std::make_unique<SystemDisk>(std::move(at.fd), std::move(reading), links, blocks,
                                             at.device),
        .device = at.device,
        .inode = at.inode};
  };
  ReopeningDisk::Opened first;
  if (root) first = opened(*root, access);
  // Where access.roots lead may be another place by then, too: one may have been mounted.
  const auto open_again = [opened, path = options.root, key = options.key, rules = options.access,
                           reader = access->reader()]() -> Result<ReopeningDisk::Opened> {
    auto reading = std::make_shared<const Access>(rules, reader);
    SPDLD_ASSIGN(Root at, open_root(path, *reading, key));
    return opened(at, std::move(reading));
  };
  return std::make_unique<ReopeningDisk>(options.root, options.remote, open_again,
                                         std::move(first));
}

}  // namespace spdld::source
