// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "posix/unique_fd.h"
#include "spec/parse.h"

namespace spdld::spec {
namespace {

tl::unexpected<Status> too_large(const std::string& path) {
  return error(Code::kInvalidArgument, path + ": larger than " + std::to_string(kMaxFileBytes) +
                                           " bytes; is this a YAML file?");
}

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  // Non-blocking, so that a pipe or a device in the place of a file does not hold us up.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return tl::unexpected<Status>(errno_status(errno, "cannot open " + path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return tl::unexpected<Status>(errno_status(errno, "cannot stat " + path));
  }
  if (!S_ISREG(info.st_mode)) {
    return error(Code::kInvalidArgument, "cannot read " + path + ": not a regular file");
  }
  if (info.st_size > static_cast<off_t>(kMaxFileBytes)) return too_large(path);

  std::string text;
  std::array<char, 16384> chunk;
  while (true) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return tl::unexpected<Status>(errno_status(errno, "cannot read " + path));
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxFileBytes) return too_large(path);
  }
}

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): nobody sets any
  if (value == nullptr) return std::nullopt;
  return value;
}

Result<PipelineSpec> parse_pipeline_file(const std::string& path, const Registry& registry,
                                         ParseOptions options) {
  SPDLD_ASSIGN(const std::string text, read_text_file(path));
  if (options.directory.empty()) {
    std::error_code failure;
    const std::filesystem::path absolute = std::filesystem::absolute(path, failure);
    if (failure) return error(Code::kNotFound, path + ": " + failure.message());
    options.directory = absolute.parent_path().string();
  }
  if (!options.read_file) options.read_file = read_text_file;
  return parse_pipeline(text, path, registry, options);
}

}  // namespace spdld::spec
