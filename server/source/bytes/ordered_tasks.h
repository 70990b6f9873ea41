// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>

#include "base/status.h"

namespace spdld::source {

struct OrderedTasks {
  std::size_t count = 0;
  int threads = 1;  // of its own, and no more than tasks
  std::stop_token stop = {};
  // Does the task of that number, on any of the threads. `given_up` says whether its outcome will
  // not be asked for; to be asked now and then.
  std::function<Status(std::size_t number, const std::function<bool()>& given_up)> task;
  // Called now and then by the calling thread, and at the end.
  std::function<void()> progress = {};
};

// Does the tasks, begun in the order of their numbers, and waits for them. Of those that fail it
// returns the failure of the lowest number, as if they had been done one by one: those after it are
// given up. kCancelled: a stop was requested.
Status run_in_order(const OrderedTasks& tasks);

}  // namespace spdld::source
