// SPDX-License-Identifier: Apache-2.0
#include "source/kept/kept_classes.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "source/bytes/digest_text.h"
#include "source/bytes/whole_file.h"

namespace spdld::source {
namespace {

constexpr std::string_view kClasses = ".classes";

std::string class_bytes(const std::vector<std::string>& classes) {
  std::string bytes;
  for (const std::string& name : classes) {
    bytes += name;
    bytes += '\0';
  }
  return bytes;
}

}  // namespace

std::string KeptClasses::path(const std::string& digest) const {
  return directory_ + "/" + digest + std::string(kClasses);
}

void KeptClasses::add_file(const ListedId& id, std::set<std::string>& files) const {
  if (!id.classes.empty()) files.insert(id.classes + std::string(kClasses));
}

Status KeptClasses::keep(const std::vector<std::string>& classes, std::string& id) const {
  namespace fs = std::filesystem;
  const std::string bytes = class_bytes(classes);
  const std::string digest = digest_text(bytes);
  id += "-" + digest;
  const std::string file = path(digest);
  if (const auto kept = read_whole_file(file); kept && *kept == bytes) {
    std::error_code failed;  // as if it were written now: it is not collected for a while
    fs::last_write_time(file, fs::file_time_type::clock::now(), failed);
    if (!failed) return {};
  }
  return write_whole_file(file, bytes);
}

Result<std::vector<std::string>> KeptClasses::load(const ListedId& id) const {
  std::vector<std::string> classes;
  if (id.classes.empty()) return classes;
  const std::string file = path(id.classes);
  SPDLD_ASSIGN(const std::string bytes, read_whole_file(file));
  if (digest_text(bytes) != id.classes)
    return error(Code::kDataLoss, file + " is damaged: it is not what was written");
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\0', begin), bytes.size());
    classes.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return classes;
}

}  // namespace spdld::source
