// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/fake_cuda/scheduler.h"

namespace spdld::fake_cuda {

// The copies that read or write some memory and may not be done yet. Guarded by the lock of the
// driver.
class Uses {
 public:
  void add(Point copy, Scheduler& scheduler) {
    std::erase_if(copies_, [&](const Point& earlier) { return scheduler.passed(earlier); });
    copies_.push_back(std::move(copy));
  }
  bool pending(Scheduler& scheduler) const {
    return !std::all_of(copies_.begin(), copies_.end(),
                        [&](const Point& copy) { return scheduler.passed(copy); });
  }

 private:
  std::vector<Point> copies_;
};

}  // namespace spdld::fake_cuda
