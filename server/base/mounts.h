// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>

namespace spdld {

// Where devices are mounted, as this process sees it; of a device that is mounted several times,
// the first mount. File systems that make up device numbers of their own, such as btrfs, have
// others here than their files say.
std::map<dev_t, std::string> mount_points();
// The same of a text in the format of /proc/self/mountinfo. Lines that are not understood are left
// out.
std::map<dev_t, std::string> mount_points(std::string_view mountinfo);

}  // namespace spdld
