// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <vector>

namespace spdld::testing {

// Makes the kernels take the best of `targets` until it goes.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t targets) { force(targets); }
  ~ForcedTarget() { force(0); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;

 private:
  static void force(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Of Highway's, those that this machine can run.
inline std::vector<std::int64_t> all_targets() {
  std::vector<std::int64_t> all;
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1)
    all.push_back(left & -left);
  return all;
}

}  // namespace spdld::testing
