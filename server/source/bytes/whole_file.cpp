// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "posix/unique_fd.h"

namespace spdld::source {
namespace {

constexpr std::uint64_t kMaxWholeFile = std::uint64_t{64} << 30;

Status write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_status(errno, "cannot write " + path);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Status sync_directory(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return errno_status(errno, "cannot write " + directory);
  return {};
}

// A file that goes away again unless it was kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& beside) : path_(beside + ".XXXXXX") {
    fd_ = UniqueFd(::mkostemp(path_.data(), O_CLOEXEC));
  }
  ~TemporaryFile() {
    if (fd_ && !kept_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return fd_.get(); }
  bool rename_to(const std::string& path) {
    kept_ = ::rename(path_.c_str(), path.c_str()) == 0;
    return kept_;
  }

 private:
  std::string path_;
  UniqueFd fd_;
  bool kept_ = false;
};

// With the directory that it lies in. 0, or errno.
int make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  const std::size_t slash = path.rfind('/');
  if (errno != ENOENT || slash == 0 || slash == std::string::npos) return errno;
  if (const int err = make_directory(path.substr(0, slash)); err != 0) return err;
  return ::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

}  // namespace

Status write_whole_file(const std::string& path, std::string_view text) {
  const std::string directory = path.substr(0, path.rfind('/'));
  if (const int err = make_directory(directory); err != 0)
    return errno_status(err, "cannot make " + directory);
  TemporaryFile file(path);
  if (file.fd() < 0) return errno_status(errno, "cannot write " + path);
  SPDLD_TRY(write_all(file.fd(), text, path));
  if (::fsync(file.fd()) != 0 || !file.rename_to(path)) {
    return errno_status(errno, "cannot write " + path);
  }
  return sync_directory(path);
}

Result<std::string> read_whole_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    return tl::unexpected(errno_status(errno, "cannot read " + path));
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || size > kMaxWholeFile) {
    return error(Code::kDataLoss, path + " is no index");
  }
  try {
    std::string text(size, '\0');
    for (std::size_t done = 0; done < size;) {
      const ssize_t count = ::read(fd.get(), text.data() + done, size - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return tl::unexpected(errno_status(errno, "cannot read " + path));
      if (count == 0) return error(Code::kDataLoss, path + " is shorter than it was");
      done += static_cast<std::size_t>(count);
    }
    return text;
  } catch (const std::bad_alloc&) {
    return error(Code::kResourceExhausted, "there is no memory for " + path);
  }
}

}  // namespace spdld::source
