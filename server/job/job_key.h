// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <string>

namespace spdld::job {

struct JobKey {
  uid_t uid = 0;
  std::string job;
  std::string pipeline;  // its id: job/pipeline_id.h

  friend auto operator<=>(const JobKey&, const JobKey&) = default;
};

}  // namespace spdld::job
