// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "base/clock.h"
#include "delivery/arena_pool.h"
#include "delivery/data_server.h"
#include "engine/executor.h"
#include "pipeline/catalogue.h"
#include "pipeline/user_code.h"
#include "store/store.h"

namespace spdld::session {

// The parts of the daemon that sessions work with; all outlive them.
struct SessionsDeps {
  pipeline::Catalogue& catalogue;
  pipeline::PipelineTable& pipelines = catalogue.table();
  engine::Executor& executor;
  delivery::ArenaPool& arenas;
  delivery::ArenaBudget& budget;
  delivery::Devices& devices;
  store::Store& store;
  const Clock& clock;
  delivery::ArenaKind arena_kind = delivery::ArenaKind::kMemfd;
  std::chrono::seconds retain{7 * 24 * 3600};  // what is known of jobs that have ended
  std::size_t jobs_per_user = 1024;            // declared or running; not of trusted users
  std::string address = "/run/spdld";          // where commands reach the daemon
  bool launched = false;                       // by a loader: it ends with those who read from it
  pipeline::UserCode code = {};                // users' own functions
  // Whether files of the configuration are still being applied; called under the table's mutex.
  std::function<bool()> files_pending = [] { return false; };
};

}  // namespace spdld::session
