// SPDX-License-Identifier: Apache-2.0
#include "source/file/rights.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "source/file/access.h"
#include "source/file/disk.h"

namespace spdld::source {
namespace {

constexpr char kAclName[] = "system.posix_acl_access";
constexpr char kNfs4AclName[] = "system.nfs4_acl";
constexpr std::size_t kUsualAcl = 512;
constexpr std::size_t kLargestAcl = 65536;  // XATTR_SIZE_MAX

// linux/posix_acl_xattr.h, little-endian.
constexpr std::uint32_t kAclVersion = 2;
constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kEntryBytes = 8;
enum Tag : std::uint16_t {
  kUserObj = 0x01,
  kUser = 0x02,
  kGroupObj = 0x04,
  kGroup = 0x08,
  kMask = 0x10,
  kOther = 0x20,
};

struct AclEntry {
  std::uint16_t tag = 0;
  std::uint16_t allowed = 0;
  std::uint32_t id = 0;
};

template <typename T>
T little_endian(std::span<const std::byte> bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes[at + i]) << (8 * i)));
  return value;
}

std::optional<std::vector<AclEntry>> parse(std::span<const std::byte> acl) {
  if (acl.size() < kHeaderBytes || (acl.size() - kHeaderBytes) % kEntryBytes != 0 ||
      little_endian<std::uint32_t>(acl, 0) != kAclVersion)
    return std::nullopt;
  std::vector<AclEntry> entries;
  for (std::size_t at = kHeaderBytes; at < acl.size(); at += kEntryBytes)
    entries.push_back({.tag = little_endian<std::uint16_t>(acl, at),
                       .allowed = little_endian<std::uint16_t>(acl, at + 2),
                       .id = little_endian<std::uint32_t>(acl, at + 4)});
  return entries;
}

bool has_all(unsigned allowed, unsigned wanted) { return (allowed & wanted) == wanted; }

// The owner has been asked before.
bool acl_allows(const Credentials& user, unsigned wanted, gid_t group,
                std::span<const std::byte> acl) {
  const auto entries = parse(acl);
  if (!entries) return false;
  unsigned mask = 7;
  for (const AclEntry& entry : *entries) {
    if (entry.tag == kMask) mask = entry.allowed;
  }
  for (const AclEntry& entry : *entries) {
    if (entry.tag == kUser && user.is_user(entry.id)) return has_all(entry.allowed & mask, wanted);
  }
  bool in_a_group = false;
  for (const AclEntry& entry : *entries) {
    const bool matches = (entry.tag == kGroupObj && user.in_group(group)) ||
                         (entry.tag == kGroup && user.in_group(entry.id));
    if (matches && has_all(entry.allowed & mask, wanted)) return true;
    in_a_group = in_a_group || matches;
  }
  if (in_a_group) return false;
  for (const AclEntry& entry : *entries) {
    if (entry.tag == kOther) return has_all(entry.allowed, wanted);
  }
  return false;
}

// fgetxattr() that takes an O_PATH descriptor, too: -1 and errno, or the size.
ssize_t get_attribute(int fd, const char* name, void* value, std::size_t size) {
  const ssize_t got = ::fgetxattr(fd, name, value, size);
  if (got >= 0 || errno != EBADF) return got;
  return ::getxattr(path_by_fd(fd).c_str(), name, value, size);
}

}  // namespace

RightsKind rights_kind(int fd) {
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return RightsKind::kOther;
  const auto magic = static_cast<std::uint32_t>(info.f_type);
  constexpr std::array<std::uint32_t, 19> kNever{
      PROC_SUPER_MAGIC, SYSFS_MAGIC,        DEVPTS_SUPER_MAGIC,  DEBUGFS_MAGIC, TRACEFS_MAGIC,
      SECURITYFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, BPF_FS_MAGIC,  PSTOREFS_MAGIC,
      EFIVARFS_MAGIC,   SELINUX_MAGIC,      SMACK_MAGIC,         NSFS_MAGIC,    PIPEFS_MAGIC,
      SOCKFS_MAGIC,     BINFMTFS_MAGIC,     ANON_INODE_FS_MAGIC, 0x62656570 /* configfs */};
  if (std::find(kNever.begin(), kNever.end(), magic) != kNever.end()) return RightsKind::kNever;
  // NFS without NFSv4 ACLs goes by modes and POSIX ACLs.
  if (magic == NFS_SUPER_MAGIC) {
    const bool modes = get_attribute(fd, kNfs4AclName, nullptr, 0) < 0 && errno == EOPNOTSUPP;
    return modes ? RightsKind::kModes : RightsKind::kOther;
  }
  constexpr std::array<std::uint32_t, 2> kRemote{0x00c36400 /* Ceph */, 0x0bd00bd0 /* Lustre */};
  const bool modes =
      is_local(fd) || std::find(kRemote.begin(), kRemote.end(), magic) != kRemote.end();
  return modes ? RightsKind::kModes : RightsKind::kOther;
}

bool may(const Credentials& user, unsigned wanted, const struct stat& info,
         std::span<const std::byte> acl) {
  if (user.is_user(info.st_uid)) return has_all(info.st_mode >> 6, wanted);
  // With an ACL, the group's bits are its mask; where that is empty the kernel looks no further.
  if (!acl.empty() && (info.st_mode & S_IRWXG) != 0)
    return acl_allows(user, wanted, info.st_gid, acl);
  return has_all(user.in_group(info.st_gid) ? info.st_mode >> 3 : info.st_mode, wanted);
}

bool may_by_modes(const Credentials& user, unsigned wanted, int fd, const struct stat& info) {
  if (user.is_user(info.st_uid) || (info.st_mode & S_IRWXG) == 0)
    return may(user, wanted, info, {});
  std::array<std::byte, kUsualAcl> usual;
  ssize_t size = get_attribute(fd, kAclName, usual.data(), usual.size());
  if (size >= 0) return may(user, wanted, info, {usual.data(), static_cast<std::size_t>(size)});
  if (errno == ENODATA || errno == EOPNOTSUPP) return may(user, wanted, info, {});
  if (errno != ERANGE) return false;
  std::vector<std::byte> large(kLargestAcl);
  size = get_attribute(fd, kAclName, large.data(), large.size());
  return size >= 0 && may(user, wanted, info, {large.data(), static_cast<std::size_t>(size)});
}

}  // namespace spdld::source
