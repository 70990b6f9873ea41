// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "session/job_table.h"

namespace spdld::session {

// Of its batches, fields lie on GPUs: they are asked for, and one is large enough.
bool delivers_to_gpus(const pipeline::Phase& phase);
// Where a consumer's GPU cannot be had or is full: on_unavailable is host.
bool may_stay_in_main_memory(const pipeline::Phase& phase);
// Tells the consumer's user that it does, and why. `has_device`: the consumer has a GPU of its own.
std::string in_main_memory_text(const pipeline::Phase& phase, const std::string& why,
                                bool has_device);
// Whether GpuOpener::open() was called for it: only then may the consumer read the phase.
bool has_opened_gpu(const Session& session, const pipeline::Phase& phase);

// Opens the GPUs that consumers name. Owned by Sessions. Thread-safe.
class GpuOpener {
 public:
  GpuOpener(delivery::Devices& devices, JobTable& table) : devices_(devices), table_(table) {}

  // For all that the session's job runs, and is to run. Takes its time: begins the GPU's context if
  // nobody has. Where the GPU cannot be had, that is refused, or told as a warning.
  Status open(const SessionPtr& session) SPDLD_EXCLUDES(table_.mutex());
  // For a phase that its job is to run: a refusal names the session.
  Status open(const SessionPtr& session, const pipeline::Phase& phase)
      SPDLD_EXCLUDES(table_.mutex());
  // The same for all consumers of a job.
  Status open_all(const JobPtr& job, const pipeline::Phase& phase) SPDLD_EXCLUDES(table_.mutex());

 private:
  Status open_for(const SessionPtr& session, const pipeline::Phase& phase)
      SPDLD_EXCLUDES(table_.mutex());

  delivery::Devices& devices_;
  JobTable& table_;
};

}  // namespace spdld::session
