// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "pipeline/listings.h"

namespace spdld::pipeline {

// An asker and whether it was told.
class Asking {
 public:
  const ListingAsker& asker() { return asker_; }
  // The next time, if it was waited for before.
  void await_told() {
    told_.wait(false);
    told_ = false;
  }
  bool told() const { return told_; }

 private:
  std::atomic<bool> told_ = false;
  ListingAsker asker_{[this] {
    told_ = true;
    told_.notify_all();
  }};
};

}  // namespace spdld::pipeline
