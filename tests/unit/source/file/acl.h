// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/xattr.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spdld::source {

// A POSIX ACL as system.posix_acl_access has it. Entries go in as the kernel wants them: owner,
// named users, group, named groups, mask, others.
class Acl {
 public:
  Acl& owner(unsigned allowed) { return add(0x01, allowed, kNoId); }
  Acl& user(uid_t uid, unsigned allowed) { return add(0x02, allowed, uid); }
  Acl& group(unsigned allowed) { return add(0x04, allowed, kNoId); }
  Acl& group(gid_t gid, unsigned allowed) { return add(0x08, allowed, gid); }
  Acl& mask(unsigned allowed) { return add(0x10, allowed, kNoId); }
  Acl& others(unsigned allowed) { return add(0x20, allowed, kNoId); }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  // False where the file system has no ACLs.
  bool set_on(const std::string& path) const {
    return ::setxattr(path.c_str(), "system.posix_acl_access", bytes_.data(), bytes_.size(), 0) ==
           0;
  }

 private:
  static constexpr std::uint32_t kNoId = ~std::uint32_t{0};

  Acl& add(std::uint16_t tag, unsigned allowed, std::uint32_t id) {
    put(tag, 2);
    put(allowed, 2);
    put(id, 4);
    return *this;
  }
  void put(std::uint32_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }

  std::vector<std::byte> bytes_{std::byte{2}, std::byte{0}, std::byte{0}, std::byte{0}};
};

}  // namespace spdld::source
