// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "session/timeline.h"
#include "session/views.h"

struct sqlite3;

namespace spdld::session {

struct JobKey {
  uid_t uid = 0;
  std::string job;
  std::string pipeline;

  friend auto operator<=>(const JobKey&, const JobKey&) = default;
};

// A pipeline as it was submitted: enough to build it again.
struct StoredPipeline {
  std::string name;
  std::uint32_t version = 0;
  uid_t owner = 0;
  ApplyRequest request;
};

// A job as it was declared, and where it was re-sharded.
struct StoredJob {
  JobKey key;
  JobRequest request;
  std::uint64_t seed = 0;
  std::uint64_t open_epochs = 0;
  StepAt start;
  std::vector<Timeline::Cut> cuts;
};

// What must outlive the daemon: one SQLite file in state_dir. Each call is one transaction, on disk
// when it returns. Thread-safe; calls wait for each other.
class Store {
 public:
  // Makes state_dir if it is not there. The error of a directory that is read-only, full or another
  // user's says so and what to do.
  static Result<std::unique_ptr<Store>> open(const std::string& state_dir);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  Status put_pipeline(const StoredPipeline& pipeline);
  Status remove_pipeline(const std::string& name);
  Result<std::vector<StoredPipeline>> pipelines();

  // The content digest of a pipeline file when it was last applied at start; empty: never.
  Status put_file(const std::string& path, const std::string& digest);
  Result<std::string> file_digest(const std::string& path);

  Status put_job(const StoredJob& job);
  // With what was replaced in it.
  Status remove_job(const JobKey& key);
  Result<std::vector<StoredJob>> jobs();

  // Items that were replaced in a job: they count against its budget for good.
  Status add_replaced(const JobKey& key, std::uint64_t item);
  Result<std::set<std::uint64_t>> replaced(const JobKey& key);

 private:
  explicit Store(std::string path) : path_(std::move(path)) {}
  Status failure(const char* what) SPDLD_REQUIRES(mutex_);
  Status migrate() SPDLD_EXCLUDES(mutex_);

  class Statement;

  const std::string path_;
  Mutex mutex_;
  sqlite3* db_ SPDLD_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace spdld::session
