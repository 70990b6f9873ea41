// SPDX-License-Identifier: Apache-2.0
#include "session/job_texts.h"

#include <algorithm>
#include <vector>

namespace spdld::session {

std::string shard_text(std::uint32_t shard, std::uint32_t num_shards) {
  return "shard " + std::to_string(shard) + " of " + std::to_string(num_shards);
}

std::string member_text(const Job& job, job::Member member) {
  return (job.replicas > 1 ? "replica " + std::to_string(member.replica) + " of " : "") + "shard " +
         std::to_string(member.shard);
}

std::string waits_text(const Job& job, std::uint32_t shard) {
  return "job '" + job.key.job + "': shard " + std::to_string(shard) +
         " comes into the job where it was resized, and no rank of the shards that were there "
         "before has come to that step; start the others, too: from their saved states, or all "
         "afresh";
}

std::string away_text(const Job& job, job::Member member) {
  if (job.absent == stream::AbsentReplica::kGoOn) return {};
  const std::vector<job::Member> done = job.presence->done();
  for (std::uint32_t replica = 0; replica < job.replicas; ++replica) {
    const job::Member other{member.shard, replica};
    const auto held = job.members.find(other);
    const bool is_here = held != job.members.end() && held->second->consumer != nullptr;
    if (!is_here && std::find(done.begin(), done.end(), other) == done.end())
      return "; " + member_text(job, other) + " is away, and is waited for: start it again";
  }
  return {};
}

Status beyond_its_end(const Job& job) {
  return Status(Code::kOutOfRange, "job '" + job.key.job + "' ends with epoch " +
                                       std::to_string(job.max_epochs - 1) +
                                       ", as it was created, and cannot be made longer: create "
                                       "another one with more (--max-epochs), and start its ranks "
                                       "from a saved state");
}

Status check_job_name(const std::string& name) {
  if (!name.starts_with('-') && !name.starts_with('.')) return {};
  return {Code::kInvalidArgument,
          "job '" + name + "': a name that begins with '" + name[0] +
              "' would be taken for an option or a directory; give the job another one"};
}

}  // namespace spdld::session
