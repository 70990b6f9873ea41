// SPDX-License-Identifier: Apache-2.0
#include "source/tar/archive_kind.h"

#include <array>

#include "base/text/printable.h"

namespace spdld::source {
namespace {

using std::string_view_literals::operator""sv;

struct Compression {
  std::string_view head;
  std::string_view name;
  std::string_view command;  // writes what it has unpacked to its output
};

constexpr std::array<Compression, 7> kCompressions{{
    {"\x1f\x8b"sv, "gzip", "gunzip -c"},
    {"\x28\xb5\x2f\xfd"sv, "zstd", "zstd -dc"},
    {"BZh"sv, "bzip2", "bunzip2 -c"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz", "unxz -c"},
    {"\x04\x22\x4d\x18"sv, "lz4", "lz4 -dc"},
    {"LZIP"sv, "lzip", "lzip -dc"},
    {"\x1f\x9d"sv, "compress", "uncompress -c"},
}};

// What to call the archive that comes out.
std::string unpacked_name(std::string_view path) {
  constexpr std::array<std::string_view, 4> kShort{".tgz", ".tzst", ".tbz2", ".txz"};
  for (const std::string_view ending : kShort) {
    if (path.ends_with(ending))
      return std::string(path.substr(0, path.size() - ending.size())) + ".tar";
  }
  const std::size_t tar = path.rfind(".tar.");
  if (tar != std::string_view::npos && path.find('/', tar) == std::string_view::npos)
    return std::string(path.substr(0, tar)) + ".tar";
  if (path.ends_with(".tar")) path.remove_suffix(4);
  return std::string(path) + "-plain.tar";
}

// As a shell takes it for one word.
std::string shell_word(std::string_view path) {
  std::string text = "'";
  for (const char c : path) {
    if (c == '\'') text += "'\\'";
    text += c;
  }
  return printable(text + "'");
}

}  // namespace

std::string other_archive(std::string_view head, const std::string& path) {
  for (const Compression& kind : kCompressions) {
    if (!head.starts_with(kind.head)) continue;
    const std::string unpacked = shell_word(unpacked_name(path));
    return "it is compressed by " + std::string(kind.name) +
           ", in which no sample can be reached without what lies before it; unpack it, and name " +
           unpacked + " as the shard: " + std::string(kind.command) + " " + shell_word(path) +
           " > " + unpacked;
  }
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06"))
    return "it is a zip archive; unpack it, and pack the files with 'tar --sort=name -cf'";
  return {};
}

std::string repack_command(std::string_view path) {
  const std::string_view stem = path.ends_with(".tar") ? path.substr(0, path.size() - 4) : path;
  const std::string unpacked = shell_word(std::string(stem) + "-unpacked");
  return "mkdir " + unpacked + " && tar -xf " + shell_word(path) + " -C " + unpacked +
         " && tar --sort=name -cf " + shell_word(std::string(stem) + "-sorted.tar") + " -C " +
         unpacked + " .";
}

}  // namespace spdld::source
