// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/blocking_pool.h"
#include "base/mutex.h"
#include "pipeline/class_texts.h"
#include "session/job_table.h"

namespace spdld::session {

// Answers the queries of consumers about their jobs: Loader.classes, stats(), batch.uris. Owned by
// Sessions. Thread-safe.
class Queries {
 public:
  Queries(const SessionsDeps& deps, JobTable& table);

  // Returns at once; the answer goes to the connection.
  void ask(delivery::Connection& connection, const delivery::QueryRequest& request);
  // The connection is gone.
  void forget(std::uint64_t connection) SPDLD_EXCLUDES(mutex_);
  // Texts of datasets that are not open any more go.
  void forget_texts() { class_texts_.forget_gone(); }
  void stop() { threads_.stop(); }

 private:
  void answer(std::uint64_t id, const delivery::QueryRequest& request);
  // NUL-separated, for QueryKind::kUris.
  Result<std::string> uris_of(const Job& job, const delivery::QueryRequest& request) const;

  const SessionsDeps& deps_;
  JobTable& table_;
  pipeline::ClassTexts class_texts_;
  mutable Mutex mutex_;
  // How many of a connection are not answered; none: left out.
  std::map<std::uint64_t, int> waiting_ SPDLD_GUARDED_BY(mutex_);
  BlockingPool threads_;
};

}  // namespace spdld::session
