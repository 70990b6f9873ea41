// SPDX-License-Identifier: Apache-2.0
#include "ctl/init/tar_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text/printable.h"
#include "ctl/failure.h"

namespace spdld::ctl {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::size_t kHead = 64;
constexpr std::uint64_t kMaxExtension = 1 << 20;
constexpr std::size_t kMaxHeaders = 4096;  // of directories, links and extensions, too

std::string_view text_of(std::string_view block, std::size_t at, std::size_t size) {
  const std::string_view field = block.substr(at, size);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

// Octal, or, where the first bit says so, bytes.
std::optional<std::uint64_t> number_of(std::string_view field) {
  std::uint64_t value = 0;
  if ((static_cast<unsigned char>(field[0]) & 0x80) != 0) {
    for (const char c : field.substr(field.size() - 7))
      value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  const std::size_t begin = std::min(field.find_first_not_of(' '), field.size());
  const char* const end = field.data() + field.size();
  return std::from_chars(field.data() + begin, end, value, 8).ec == std::errc()
             ? std::optional(value)
             : std::nullopt;
}

bool is_header(std::string_view block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  return number_of(block.substr(148, 8)) == sum;
}

// The value of a pax header's record "LENGTH KEY=VALUE\n".
std::optional<std::string> pax_value(std::string_view records, std::string_view key) {
  std::optional<std::string> found;
  while (!records.empty()) {
    std::size_t length = 0;
    const auto [at, failed] =
        std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<std::size_t>(at - records.data());
    if (failed != std::errc() || length <= digits + 1 || length > records.size()) break;
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    if (record.size() > key.size() && record.starts_with(key) && record[key.size()] == '=')
      found = record.substr(key.size() + 1);
    records.remove_prefix(length);
  }
  return found;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_)
      throw Failure(kWrongUsage, fmt::format("cannot open {}: {}", printable(path),
                                             std::generic_category().message(errno)));
    std::error_code failure;
    size_ = std::filesystem::file_size(path, failure);
    if (failure)
      throw Failure(kWrongUsage,
                    fmt::format("cannot look at {}: {}", printable(path), failure.message()));
  }

  TarStart read(std::size_t most) {
    TarStart start;
    for (std::size_t headers = 0; headers < kMaxHeaders && start.files.size() < most; ++headers) {
      const std::string block = bytes(at_, kBlock);
      if (block.empty() && extended_) fail_cut("a header that names a member is the last");
      start.whole = block.empty() || block.find_first_not_of('\0') == std::string::npos;
      if (start.whole) break;
      if (block.size() < kBlock && at_ > 0)
        fail_cut(fmt::format("only {} bytes of a header follow", block.size()));
      if (block.size() < kBlock || !is_header(block)) fail(block);
      read_member(block, start);
    }
    start.bytes = at_;
    return start;
  }

  std::string bytes(std::uint64_t offset, std::uint64_t size) {
    std::string text(size, '\0');
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file_.gcount(), 0)));
    return text;
  }

 private:
  // `block` is its header, at at_, which goes on behind it.
  void read_member(const std::string& block, TarStart& start) {
    const std::uint64_t content = at_ + kBlock;
    const char type = block[156];
    const bool extension = type == 'x' || type == 'L' || type == 'g' || type == 'K';
    std::string name = extension || name_.empty() ? plain_name(block) : name_;
    std::uint64_t size = number_of(std::string_view(block).substr(124, 12)).value_or(0);
    if (!extension && pax_size_)
      std::from_chars(pax_size_->data(), pax_size_->data() + pax_size_->size(), size);
    // No content follows the headers of links, devices and directories, whatever their size says.
    if (type >= '1' && type <= '6') size = 0;
    // The header was read, so that this much is there.
    const std::uint64_t left = size_ - std::min(size_, content);
    if (size > left || padded(size) > left) fail_cut_member(name, size, left);
    if (type == 'x' || type == 'L') {
      const std::string text = bytes(content, std::min(size, kMaxExtension));
      name_ = type == 'L' ? text_of(text, 0, text.size()) : pax_value(text, "path").value_or(name_);
      if (type == 'x') pax_size_ = pax_value(text, "size");
    }
    if (type == '0' || type == '\0' || type == '7')
      start.files.push_back({.name = name,
                             .head = bytes(content, std::min<std::uint64_t>(size, kHead)),
                             .offset = content,
                             .size = size});
    if (extension) {
      // A global header belongs to no member, and may be the last.
      extended_ = extended_ || type != 'g';
    } else {
      extended_ = false;
      name_.clear();
      pax_size_.reset();
      last_ = std::move(name);
    }
    at_ = content + padded(size);
  }

  static std::uint64_t padded(std::uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

  static std::string plain_name(std::string_view block) {
    std::string name;
    if (block.substr(257, 6) == std::string_view("ustar\0", 6)) {
      name = text_of(block, 345, 155);
      if (!name.empty()) name += '/';
    }
    return name.append(text_of(block, 0, 100));
  }

  // As the daemon's reader of shards has it.
  [[noreturn]] void fail_cut_member(const std::string& name, std::uint64_t size,
                                    std::uint64_t left) const {
    throw Failure(kWrongUsage,
                  fmt::format("{}: at byte {}, member '{}': it is cut off: it has {} bytes, and "
                              "only {} follow up to the end of the file; copy the shard again, or "
                              "pack it anew",
                              printable(path_), at_, printable(name), size, left));
  }
  [[noreturn]] void fail_cut(const std::string& why) const {
    throw Failure(
        kWrongUsage,
        fmt::format("{}: at byte {}, {}: it is cut off: {}; copy the shard again, or pack it anew",
                    printable(path_), at_,
                    last_.empty() ? "before its first member"
                                  : fmt::format("behind member '{}'", printable(last_)),
                    why));
  }

  [[noreturn]] void fail(const std::string& block) const {
    if (at_ > 0)
      throw Failure(kWrongUsage, fmt::format("{} is damaged at byte {}: there is no header of a "
                                             "member; write it anew",
                                             printable(path_), at_));
    constexpr std::array<std::string_view, 4> kPacked{"\x1f\x8b", "\x28\xb5\x2f\xfd", "BZh",
                                                      "\xfd"
                                                      "7zXZ"};
    for (const std::string_view head : kPacked) {
      if (block.starts_with(head))
        throw Failure(kWrongUsage,
                      fmt::format("{} is compressed, and nothing can be found in it without "
                                  "unpacking what lies before: unpack it, and name the tar",
                                  printable(path_)));
    }
    throw Failure(kWrongUsage, fmt::format("{} is no tar archive: it does not begin with the "
                                           "header of a member",
                                           printable(path_)));
  }

  const std::string& path_;
  std::ifstream file_;
  std::uint64_t size_ = 0;  // of the archive
  std::uint64_t at_ = 0;
  std::string last_;                     // member that was passed
  bool extended_ = false;                // an extension names the next member
  std::string name_;                     // of the next member, by an extension
  std::optional<std::string> pax_size_;  // likewise
};

}  // namespace

TarStart read_tar_start(const std::string& path, std::size_t most) {
  return Reader(path).read(most);
}

std::string read_tar_file(const std::string& path, const TarFile& file, std::size_t most) {
  return file.size > most ? std::string() : Reader(path).bytes(file.offset, file.size);
}

}  // namespace spdld::ctl
