// SPDX-License-Identifier: Apache-2.0
#include "source/classes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/unique_fd.h"

namespace spdld::source {
namespace {

constexpr std::size_t kMaxFile = std::size_t{16} << 20;

Result<std::string> read_text(const std::string& path, const Roots& roots) {
  SPDLD_ASSIGN(const std::string real, roots.resolve(path));
  const UniqueFd fd(::open(real.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return tl::unexpected(path_error(errno, "cannot read", path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return error(Code::kInvalidArgument, path + " is no regular file");
  }
  std::string text;
  for (char part[65536];;) {
    const ssize_t count = ::read(fd.get(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return tl::unexpected(path_error(errno, "cannot read", path));
    if (count == 0) return text;
    text.append(part, static_cast<std::size_t>(count));
    if (text.size() > kMaxFile) {
      return error(Code::kResourceExhausted, path + " has more than 16 MiB");
    }
  }
}

Result<std::vector<std::string>> read_names(const std::string& path, const Roots& roots) {
  SPDLD_ASSIGN(const std::string text, read_text(path, roots));
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (!name.empty() && name.back() == '\r') name.pop_back();
    if (!name.empty()) names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

Status check_names(const std::vector<std::string>& names, const std::string& from) {
  if (names.empty()) {
    return Status(Code::kInvalidArgument, from + " names no class; give at least one");
  }
  std::unordered_set<std::string_view> seen;
  for (const std::string& name : names) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      return Status(Code::kInvalidArgument,
                    from + " names the class '" + name + "', which is no name of a directory");
    }
    if (!seen.insert(name).second) {
      return Status(Code::kInvalidArgument, from + " names the class '" + name + "' twice");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> class_names(const ClassesSpec& spec, const Listing& listing,
                                             const std::vector<std::string>& of_pipeline,
                                             const Roots& roots) {
  switch (spec.kind) {
    case ClassesSpec::Kind::kDirectories: return listing.top_directories;
    case ClassesSpec::Kind::kList:
      SPDLD_TRY(check_names(spec.names, "the list of classes"));
      return spec.names;
    case ClassesSpec::Kind::kFile: {
      SPDLD_ASSIGN(std::vector<std::string> names, read_names(spec.path, roots));
      SPDLD_TRY(check_names(names, spec.path));
      return names;
    }
    case ClassesSpec::Kind::kPipeline:
      SPDLD_TRY(check_names(of_pipeline, "pipeline '" + spec.pipeline + "'"));
      return of_pipeline;
  }
  return error(Code::kInternal, "classes of no kind");
}

Result<std::vector<std::int64_t>> label_runs(const Listing& listing,
                                             const std::vector<std::string>& classes) {
  std::unordered_map<std::string_view, std::int64_t> index;
  for (const std::string& name : classes) {
    index.emplace(name, static_cast<std::int64_t>(index.size()));
  }
  std::vector<std::int64_t> labels;
  for (const Listing::Run& run : listing.runs()) {
    if (run.directory.empty()) {
      return error(Code::kInvalidArgument,
                   "'" + listing.uri(run.first) +
                       "' has no class: it lies in no directory below the root; move it, or narrow "
                       "the pattern to */**/...");
    }
    const auto found = index.find(run.directory);
    if (found == index.end()) {
      return error(Code::kInvalidArgument, "'" + listing.uri(run.first) + "' has no class: '" +
                                               run.directory + "' is none of the " +
                                               std::to_string(classes.size()) +
                                               " classes; add it to them, or narrow the pattern");
    }
    labels.push_back(found->second);
  }
  return labels;
}

}  // namespace spdld::source
