// SPDX-License-Identifier: Apache-2.0
#include "source/listing/classes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "source/file/text_file.h"

namespace spdld::source {
namespace {

constexpr std::size_t kMaxNamesFile = std::size_t{16} << 20;

// Of a name beside its text: the string, and a place in a look-up of all names.
constexpr std::uint64_t kBytesOfName = sizeof(std::string) + 64;

Result<std::vector<std::string>> read_names(const std::string& path, const Access& access,
                                            ListingMemory::Share* memory) {
  SPDLD_ASSIGN(const std::string text, read_text(access, path, kMaxNamesFile));
  const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  if (memory != nullptr)
    SPDLD_TRY(memory->cover(text.size() + lines * kBytesOfName).with_context(path));
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

// What is wrong with a list of names. `quoted`: messages may say what stands in it.
Status check_names(const std::vector<std::string>& names, const std::string& from, bool quoted) {
  if (names.empty()) {
    return Status(Code::kInvalidArgument, from + " names no class; give at least one");
  }
  const auto nth = [&](std::size_t i) {
    const std::string number = "name " + std::to_string(i + 1);
    return quoted ? number + ", '" + names[i] + "'," : number;
  };
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      return Status(Code::kInvalidArgument,
                    from + ": " + nth(i) + " is no name of a directory, as a class has");
    }
    const auto [before, first] = seen.try_emplace(name, i);
    if (!first) {
      return Status(Code::kInvalidArgument, from + ": " + nth(i) + " is name " +
                                                std::to_string(before->second + 1) +
                                                " once more; no class is named twice");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> class_names(const ClassesSpec& spec, const Listing& listing,
                                             const std::vector<std::string>& known,
                                             const Access& access, ListingMemory::Share* memory) {
  switch (spec.kind) {
    case ClassesSpec::Kind::kDirectories: return listing.top_directories;
    case ClassesSpec::Kind::kList:
      SPDLD_TRY(check_names(spec.names, "the list of classes", true));
      return spec.names;
    case ClassesSpec::Kind::kFile: {
      if (!known.empty()) return known;
      SPDLD_ASSIGN(std::vector<std::string> names, read_names(spec.path, access, memory));
      SPDLD_TRY(check_names(names, spec.path, false));
      return names;
    }
    case ClassesSpec::Kind::kPipeline:
      SPDLD_TRY(check_names(known, "pipeline '" + spec.pipeline + "'", true));
      return known;
  }
  return error(Code::kInternal, "classes of no kind");
}

std::uint64_t memory_bytes(const std::vector<std::string>& classes) {
  std::uint64_t bytes = classes.capacity() * sizeof(std::string);
  const std::size_t in_place = std::string().capacity();
  for (const std::string& name : classes) {
    if (name.capacity() > in_place) bytes += name.capacity() + 1;
  }
  return bytes;
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
      return error(
          Code::kInvalidArgument,
          "'" + listing.uri(run.first) +
              "' has no class: it lies in no directory below the root; move it into one, or "
              "let the pattern begin with '*/'");
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
